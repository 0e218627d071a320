"""Step 3: what PyTorch says. The captured graph is run node by node, in float64 or in the model's own precision.

Running the double-converted eager model would not do: a graph holds dtype arguments of its own (`_to_copy(dtype=float32)`,
`softmax(dtype=float32)`), and operators that name none make float32 by default. Both are widened here, nothing else is changed.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from bisect_tvm.errors import CaptureError, InputError, one_line
from bisect_tvm.model.capture import Program

WIDENED = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""Dtypes that become float64 on both sides."""

SHORT = 2.0**6
"""Multiples of its inverse are kept as they are when inputs are filled with digits."""

Value = Any
"""What a graph node holds: a tensor, a tuple or list of tensors, or a number."""
Env = dict[str, Value]


@dataclass(frozen=True)
class Reference:
    """Every value of one run, by graph node."""

    values: Mapping[str, Value]
    """In float64. User inputs carry digits beyond those they had, see `_filled`."""
    native: Mapping[str, Value]
    """In the model's own precision, as eager PyTorch would compute them from what the user passed."""


def run_reference(program: Program, sample: int = 0) -> Reference:
    """Run the whole program in float64 and in its own precision, and keep every value.

    Args:
        program: the captured program.
        sample: which of its samples to run.

    Raises:
        InputError: an operator gives another result when it is run again with another seed.
        CaptureError: the graph holds something that cannot be run node by node, or inputs that kernels reject (an integer tensor
            for a Linear), which `torch.export` accepts.
    """
    given = program.samples[sample]
    native: Env = {**program.bindings, **given}
    run_nodes(program, program.nodes, native, wide=False)
    env: Env = {name: widen(value) for name, value in program.bindings.items()}
    env.update({name: _filled(given[name], seed) for seed, name in enumerate(program.inputs)})
    with float64_default():
        run_nodes(program, program.nodes, env, wide=True, check_random=True)
    return Reference(env, native)


def run_nodes(
    program: Program,
    names: Iterable[str],
    env: Env,
    *,
    wide: bool,
    after: Callable[[fx.Node, Value], Value] | None = None,
    check_random: bool = False,
) -> None:
    """Run the named graph nodes in order, reading from and writing to `env`.

    Args:
        program: the captured program.
        names: nodes to run, in execution order; placeholders and the output are passed over.
        env: values by node name; must hold all that the nodes read from outside.
        wide: widen dtype arguments (the caller sets the default dtype, see `float64_default`).
        after: replaces each computed value (used to perturb it).
        check_random: run operators that draw random numbers twice and refuse those whose results differ.
    """
    with torch.no_grad():
        for name in names:
            node = program.nodes[name]
            if node.op == "get_attr":
                env[name] = _attribute(program, node, wide)
            elif node.op == "call_function":
                value = _explained(node, env, wide)
                if check_random and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                    _refuse_random(node, value, _explained(node, env, wide))
                env[name] = value if after is None else after(node, value)


def _explained(node: fx.Node, env: Mapping[str, Value], wide: bool) -> Value:
    try:
        return call(node, env, wide=wide)
    except CaptureError:  # our own, which says all
        raise
    except Exception as error:
        precision = "float64" if wide else "the model's own precision"
        raise CaptureError(f"PyTorch cannot run {node.target} ({node.name}) in {precision}: {one_line(error)}") from error


def call(node: fx.Node, env: Mapping[str, Value], *, wide: bool) -> Value:
    """Run one operator of the graph on the values in `env`."""
    args, kwargs = arguments(node, env, wide=wide)
    if is_assertion(node):
        return None
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        raise CaptureError(f"The graph holds {node.target}, whose branches cannot be compared yet ({node.name}).")
    assert callable(node.target)
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        args, kwargs = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (args, kwargs))
    value = node.target(*args, **kwargs)
    if is_uninitialised(node):
        return torch.zeros_like(value)
    return value


def arguments(node: fx.Node, env: Mapping[str, Value], *, wide: bool) -> Any:
    """What an operator of the graph is called with: positional and keyword arguments."""
    given = (node.args, node.kwargs)
    return fx.map_arg(_widened(given) if wide else given, lambda source: env[source.name])


def is_assertion(node: fx.Node) -> bool:
    """True for the run-time checks that export adds; they compute nothing."""
    return "_assert" in str(node.target)


def is_uninitialised(node: fx.Node) -> bool:
    """True for operators whose values are arbitrary by design."""
    return str(node.target).split(".")[1:2] in (
        ["empty"],
        ["empty_like"],
        ["new_empty"],
        ["empty_strided"],
        ["empty_permuted"],
    )


def widen(value: Value) -> Value:
    """Convert floating-point tensors to float64; all else stays."""
    return pytree.tree_map(lambda v: v.to(torch.float64) if isinstance(v, torch.Tensor) and v.dtype in WIDENED else v, value)


def declared_dtype(node: fx.Node) -> torch.dtype | None:
    """The dtype that a tensor of the graph has in the model itself."""
    declared = node.meta.get("val")
    return declared.dtype if isinstance(declared, torch.Tensor) else None


def rounded(value: Value, node: fx.Node) -> Value:
    """The reference's value of a graph node in the precision that the model itself has there."""
    dtype = declared_dtype(node)
    return value.to(dtype) if isinstance(value, torch.Tensor) and dtype is not None else value


def _filled(value: torch.Tensor, seed: int) -> torch.Tensor:
    """A user input in float64, with random digits behind those that it has; it rounds back to what it was.

    A number of 24 bits is a poor test of double arithmetic: its square and its sum with 1 are exact in 53 bits, so that an
    algorithm that loses digits would lose none. Whole numbers and short fractions stay: they are flags, counts and masks.
    """
    wide: torch.Tensor = widen(value)
    if value.dtype not in WIDENED or not value.numel() or value.layout is not torch.strided:
        return wide
    # Half the distance to the next number is at least a quarter of the unit, relatively.
    unit = torch.finfo(value.dtype).eps
    noise = torch.rand(value.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 0.4 - 0.2
    filled = wide * (1 + unit * noise)
    short = (wide * SHORT).frac() == 0
    keep = short | ~torch.isfinite(wide) | (filled.to(value.dtype) != value)
    return torch.where(keep, wide, filled)


@contextlib.contextmanager
def float64_default() -> Iterator[None]:
    """Make float64 what operators that name no dtype produce (`full`, `arange`, `sqrt` of integers), for the duration."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _widened(value: Value) -> Value:
    """The arguments of a node with float64 for every shorter dtype. By hand: this runs before every call of every operator."""
    if isinstance(value, list | tuple):
        return [_widened(item) for item in value] if isinstance(value, list) else tuple(map(_widened, value))
    if isinstance(value, dict):
        return {key: _widened(item) for key, item in value.items()}
    return torch.float64 if isinstance(value, torch.dtype) and value in WIDENED else value


def _attribute(program: Program, node: fx.Node, wide: bool) -> Value:
    value: Value = program.exported.graph_module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return widen(value) if wide else value


def _refuse_random(node: fx.Node, first: Value, second: Value) -> None:
    pairs = zip(pytree.tree_leaves(first), pytree.tree_leaves(second), strict=True)
    if any(isinstance(a, torch.Tensor) and not torch.equal(a, b) for a, b in pairs):
        raise InputError(
            f"The graph holds the random operator {node.target} ({node.name}), so two runs differ by themselves; "
            "pass the random values in as inputs, or remove the operator."
        )

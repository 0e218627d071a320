"""The probe: answers the search's question about many components at once.

    components -> cut -> import -> widen -> build -> run -> compare -> judge

It is the one place where the rooms meet: what PyTorch says (model), what TVM makes of it (lowering) and how they differ (numerics).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import ml_dtypes
import numpy as np
import torch

from bisect_tvm.lowering.build import Builder, RunError
from bisect_tvm.lowering.importer import ConvertMap
from bisect_tvm.lowering.workshop import Arrays, Runnable, Workshop
from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import Boundary, boundary, cut, signature_of
from bisect_tvm.model.hierarchy import Component, user_outputs
from bisect_tvm.model.perturb import run_perturbed
from bisect_tvm.model.reference import Reference, Value, run_nodes
from bisect_tvm.numerics.judge import Judgement, OutputEvidence, judge, unresolved
from bisect_tvm.numerics.metrics import Array, Floor, spread_of

UNIT = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""Relative distance of neighbouring numbers at 1, by dtype."""


class Probe:
    """Judges components of one program against its reference."""

    def __init__(
        self,
        program: Program,
        tree: Component,
        reference: Reference,
        builder: Builder,
        convert_map: ConvertMap | None,
        progress: Callable[[str], None],
        seconds: dict[str, float],
    ) -> None:
        self._program = program
        self._tree = tree
        self._values = reference.values
        self._progress = progress
        self._seconds = seconds
        self._workshop = Workshop(builder, convert_map, self._timed)
        self._convert_map = convert_map or {}
        self._parts: dict[str, Runnable | str] | None = None

    def __call__(self, components: Sequence[Component]) -> dict[str, Judgement]:
        """Judge all `components`. The first question about parts builds every part of the program, once."""
        answers = {}
        for position, component in enumerate(components):
            runnable = self._runnable(component)
            self._progress(f"comparing {component.path or 'the model'} ({position + 1} of {len(components)})")
            answers[component.id] = unresolved(runnable) if isinstance(runnable, str) else self._judge(component, runnable)
        return answers

    def _runnable(self, component: Component) -> Runnable | str:
        """The built component, or the reason why there is none."""
        if component is self._tree:
            self._progress("building the model as you do, and in float64")
            return self._workshop.build_whole(self._program.exported)
        if self._parts is None:
            self._parts = self._build_parts()
        return self._parts[component.id]

    # ------------------------------------------------------------------------------------------------------------ build

    def _build_parts(self) -> dict[str, Runnable | str]:
        """Build all operators and submodule calls side by side."""
        self._progress("cutting the model into its parts")
        components = self._tree.walk()[1:]
        with self._timed("cut"):
            keys = {c.id: signature_of(self._program, c, self._values, self._convert_map)[:16] for c in components}
        imported = {}
        blamed = self._blame(keys)
        for component in sorted(components, key=lambda c: len(c.nodes)):  # operators before what holds them
            key = f"f{keys[component.id]}"
            if key in imported or key in self._workshop.failures or blamed(component):
                continue
            with self._timed("cut"):
                program = cut(self._program, component, self._values).exported
            if (made := self._workshop.import_one(key, program)) is not None:
                imported[key] = made
        self._progress(f"building {len(imported)} distinct parts of {len(components)} in one module")
        built = self._workshop.build_parts(imported)
        return {c.id: built.get(f"f{keys[c.id]}") or self._why_not(c, keys, blamed) for c in components}

    def _blame(self, keys: dict[str, str]) -> Callable[[Component], Component | None]:
        def first_failing(component: Component) -> Component | None:
            parts = component.walk()[1:]
            return next((p for p in parts if not p.children and f"f{keys[p.id]}" in self._workshop.failures), None)

        return first_failing

    def _why_not(self, component: Component, keys: dict[str, str], blamed: Callable[[Component], Component | None]) -> str:
        part = blamed(component)
        if part is None:
            return self._workshop.failures[f"f{keys[component.id]}"]
        return f"it holds {part.operator} ({part.id}), so it could not be built: {self._workshop.failures[f'f{keys[part.id]}']}"

    # ---------------------------------------------------------------------------------------------------------- compare

    def _judge(self, component: Component, runnable: Runnable) -> Judgement:
        edge = boundary(self._program, component, self._values)
        read = edge.inputs if component is not self._tree else self._user_inputs()
        whole = component is self._tree
        compared = [self._program.nodes[n] for n in user_outputs(self._program)] if whole else list(edge.outputs)
        edge = Boundary(edge.nodes, edge.inputs, tuple(compared))
        try:
            with self._timed("run"):
                wide = runnable.run_wide([_array(self._values[n.name]) for n in read])
                native = runnable.run_native([_array(self._native(n)) for n in read])
        except RunError as error:
            return unresolved(str(error))
        if len(wide) != len(compared) or len(native) != len(compared):
            return unresolved(f"TVM returned {len(native)} outputs, PyTorch {len(compared)}")
        with self._timed("compare"):
            judgement = judge(self._evidence(edge, wide, native, deep=False))
            if judgement.diverges and not (component.children and _beyond_rounding(judgement)):
                judgement = judge(self._evidence(edge, wide, native, deep=True))
        if judgement.diverges and not component.children and self._differs_by_itself(runnable, read, wide):
            return replace(judgement, reason=f"{judgement.reason}; two runs of TVM differ from each other")
        return judgement

    def _differs_by_itself(self, runnable: Runnable, read: Sequence[torch.fx.Node], first: Arrays) -> bool:
        """True if TVM gives another result when it is run again: it reads memory that is not its own, or races."""
        with self._timed("run"):
            again = runnable.run_wide([_array(self._values[node.name]) for node in read])
        return any(a.tobytes() != b.tobytes() for a, b in zip(first, again, strict=True))

    def _user_inputs(self) -> tuple[torch.fx.Node, ...]:
        return tuple(self._program.nodes[name] for name in self._program.inputs)

    def _evidence(self, edge: Boundary, wide: Arrays, native: Arrays, *, deep: bool) -> list[OutputEvidence]:
        expected = [_array(self._values[node.name]) for node in edge.outputs]
        expected_native = self._run_native(edge)
        unit = (
            max((UNIT.get(_declared(node) or torch.bool, 0.0) for node in (*edge.nodes, *edge.inputs)), default=0.0)
            or UNIT[torch.float32]
        )
        spreads = {u: self._spreads(edge, expected, u, deep=deep) for u in {UNIT[torch.float64], unit}}
        return [
            OutputEvidence(
                name=node.name,
                expected=expected[i],
                expected_native=expected_native[i],
                actual=wide[i],
                actual_native=native[i],
                floor=Floor(spreads[UNIT[torch.float64]][i], UNIT[torch.float64]),
                floor_native=Floor(spreads[unit][i], unit),
            )
            for i, node in enumerate(edge.outputs)
        ]

    def _spreads(self, edge: Boundary, expected: list[Array], unit: float, *, deep: bool) -> list[np.typing.NDArray[np.float64]]:
        runs = [[_array(value) for value in run] for run in run_perturbed(self._program, edge, self._values, unit=unit, deep=deep)]
        return [spread_of(array, [run[i] for run in runs]) for i, array in enumerate(expected)]

    def _run_native(self, edge: Boundary) -> list[Array]:
        """PyTorch in the model's own precision, on the reference's boundary values rounded to it."""
        env = {node.name: self._native(node) for node in edge.inputs}
        others = {name: value for name, value in self._values.items() if not isinstance(value, torch.Tensor)}
        env = {**others, **env}
        run_nodes(self._program, (node.name for node in edge.nodes), env, wide=False)
        return [_array(env[node.name]) for node in edge.outputs]

    def _native(self, node: torch.fx.Node) -> Value:
        value, dtype = self._values[node.name], _declared(node)
        return value.to(dtype) if dtype is not None and value.dtype != dtype else value

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[step] = self._seconds.get(step, 0.0) + time.perf_counter() - start


def _beyond_rounding(judgement: Judgement) -> bool:
    """True if no rounding inside operators can explain the deviation, so that the costly deep floor need not be measured.

    What cancels inside an operator loses digits of small elements; it does not move the largest ones by half of a double's digits.
    """
    return (judgement.deviation64 or 0.0) > 2.0**-26 and (judgement.excess64 or 0.0) > 2.0**30


def _declared(node: torch.fx.Node) -> torch.dtype | None:
    declared = node.meta.get("val")
    return declared.dtype if isinstance(declared, torch.Tensor) else None


def _array(tensor: torch.Tensor) -> Array:
    tensor = tensor.detach().contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()

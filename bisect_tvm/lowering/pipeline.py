"""The user's pass pipeline: run as it is, or stopped where the IR can still be re-typed and rebuilt.

A pipeline is one opaque object, so its passes are watched, and left out, by a pass instrument: TVM's own interface for it.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import tvm
import tvm_ffi
from tvm import IRModule, relax

from bisect_tvm.errors import InputError
from bisect_tvm.lowering.importer import ALONE, reason_of

P = ParamSpec("P")
T = TypeVar("T")
BUILDING = frozenset(
    {
        "RewriteDataflowReshape", "ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite", "StaticPlanBlockMemory",
        "RewriteCUDAGraph", "LowerAllocTensor", "KillAfterLastUse", "LowerRuntimeBuiltin", "ComputePrimValue", "VMShapeLower",
        "AttachGlobalSymbol",
    }
)  # fmt: skip
"""The passes with which TVM's own pipelines end: they plan memory in bytes, after which no dtype can be changed any more."""
LAST = "VMShapeLower"
"""What has seen this pass is complete: the virtual machine can run it."""


@dataclass(frozen=True)
class Snapshot:
    """The module after one pass."""

    after: str
    module: IRModule


class Pipeline:
    """What happens to an imported module before code is generated.

    Args:
        given: as for `tvm.compile(relax_pipeline=)`: a name, a pass or a function from module to module; or a list of passes. One
            that does not end in TVM's building passes (such as "zero", or a pass of the user's own) is followed by TVM's default.

    Raises:
        InputError: it is none of these.
    """

    def __init__(self, given: Any = None) -> None:
        self.is_default = given is None or given == "default"
        self.text = "default" if given is None else _text_of(given)
        self._passes = _passes_of("default" if given is None else given)
        self.is_list = isinstance(self._passes, tvm.transform.Sequential)
        """It is a list of passes, which can be shortened."""
        self.is_complete = self.is_default
        """It ends in the passes that build; known as soon as it was compiled with."""

    def compile(self, module: IRModule, target: tvm.target.Target) -> Any:
        """Run all of it and generate code, as `tvm.compile` does."""
        with contextlib.ExitStack() as held:
            held.enter_context(ALONE)
            with observed(_UntilLowered(held.close)):
                if self.is_default:
                    return tvm.compile(module, target=target)
                watch = _Watch()
                with observed(watch), target:
                    module = self._passes(module)
                self.is_complete = LAST in watch.seen
                return tvm.compile(module, target=target, relax_pipeline=None if self.is_complete else "default")

    def relax_part(self, module: IRModule, target: tvm.target.Target) -> IRModule:
        """Run all passes up to those that plan memory, and lower every Relax operator to TIR."""
        with ALONE:
            with observed(_Watch(stop=True)), target:
                module = self._passes(module)
            with target:
                return _LOWERING(module)

    def snapshots(self, module: IRModule, target: tvm.target.Target) -> tuple[Snapshot, ...]:
        """The module after each pass that changed it, up to those that plan memory."""
        watch = _Watch(stop=True)
        with ALONE, observed(watch), target:
            self._passes(module.clone())  # a pass may change the module that it is given
        changed, before = [], module
        for snapshot in watch.snapshots():
            if not tvm_ffi.structural_equal(before, snapshot.module):
                changed.append(snapshot)
            before = snapshot.module
        return tuple(changed)

    def without(self, name: str) -> "Pipeline | None":
        """The same list of passes without those called `name`; None where the user gave no list that could be shortened."""
        passes = self._passes.passes if self.is_list else ()  # type: ignore[attr-defined]
        fewer = [each for each in passes if each.info.name != name]
        return Pipeline(fewer) if len(fewer) < len(passes) else None


_LOWERING = tvm.transform.Sequential(
    [relax.backend.DispatchSampling(), relax.backend.DispatchSortScan(), relax.transform.LegalizeOps()]
)
"""The first passes of TVM's default pipeline."""


@dataclass
class _Pass:
    """One pass that ran."""

    name: str
    holder: "_Pass | None"
    module: IRModule | None = None
    """What it gave."""
    is_sequence: bool = False
    """It is a list of passes, or a function that runs one, as TVM's pipelines are written."""


@tvm.instrument.pass_instrument
class _Watch:
    """Notes which passes run and what they give, and leaves out those that build."""

    def __init__(self, *, stop: bool = False) -> None:
        self._passes: list[_Pass] = []
        self._open: list[_Pass] = []
        self._stop = stop

    def should_run(self, module: IRModule, info: Any) -> bool:
        return not (self._stop and info.name in BUILDING)

    def run_before_pass(self, module: IRModule, info: Any) -> None:
        running = _Pass(info.name, self._open[-1] if self._open else None, is_sequence=info.name == "sequential")
        if running.is_sequence and running.holder is not None:
            running.holder.is_sequence = True
        self._passes.append(running)
        self._open.append(running)

    def run_after_pass(self, module: IRModule, info: Any) -> None:
        if self._stop:
            self._open[-1].module = module.clone()  # a later pass may change it
        self._open.pop()

    @property
    def seen(self) -> set[str]:
        return {each.name for each in self._passes}

    def snapshots(self) -> Iterator[Snapshot]:
        """What each pass gave that stands in the pipeline itself, not inside another pass."""
        for each in self._passes:
            inside_of = each.holder is not None and not each.holder.is_sequence
            if not each.is_sequence and not inside_of and each.module is not None:
                yield Snapshot(each.name, each.module)


@tvm.instrument.pass_instrument
class _UntilLowered:
    """Tells when the passes are through that use TVM's operator library."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def run_after_pass(self, module: IRModule, info: Any) -> None:
        if info.name == LAST:
            self._tell()


def observed(*watches: Any) -> tvm.transform.PassContext:
    """A pass context like the present one (the user's optimisation level, configuration, instruments), that also tells `watches`.

    A thread has a context of its own, so one that works for the user enters this, made in the user's thread.
    """
    now = tvm.transform.PassContext.current()
    return tvm.transform.PassContext(
        opt_level=now.opt_level,
        required_pass=list(now.required_pass),
        disabled_pass=list(now.disabled_pass),
        instruments=[*now.instruments, *watches],
        config=now.config,
    )


def in_context(action: Callable[P, T]) -> Callable[P, T]:
    """The action under the pass context of the thread that calls this, for another thread."""
    context = observed()

    def act(*args: P.args, **kwargs: P.kwargs) -> T:
        with context:
            return action(*args, **kwargs)

    return act


def _passes_of(given: Any) -> Callable[[IRModule], IRModule]:
    if isinstance(given, str):
        try:
            found: Callable[[IRModule], IRModule] = relax.get_pipeline(given)
        except Exception as error:
            raise InputError(f"TVM has no pipeline {given!r}: {reason_of(error)}.") from error
        return found
    if isinstance(given, Sequence):
        bad = [each for each in given if not isinstance(each, tvm.transform.Pass)]
        if bad:
            raise InputError(f"The pipeline's list must hold passes, but one is of type {type(bad[0]).__name__}: {bad[0]!r:.80}.")
        return tvm.transform.Sequential(list(given))  # type: ignore[no-any-return]
    if not callable(given):
        raise InputError(
            f"`pipeline` must be the name of a TVM pipeline, a pass, or a list of passes, but it is of type {type(given).__name__}."
        )
    return given  # type: ignore[no-any-return]


def _text_of(given: Any) -> str:
    if isinstance(given, str):
        return given
    passes = given.passes if isinstance(given, tvm.transform.Sequential) else given if isinstance(given, Sequence) else [given]
    names = (p.info.name if isinstance(p, tvm.transform.Pass) else getattr(p, "__name__", "a function") for p in passes)
    return ", ".join(map(str, names))

"""Step 4d: put the loops of slow kernels in an order that suits a CPU, without changing a bit of what they compute.

TVM's untuned kernels for matrix products, convolutions and sums add up one element of the output at a time. That cannot be
vectorised, as additions must not change their order, and often it walks through memory in large strides. Here the loop along the
last axis of the output becomes the innermost one, so that one instruction works on neighbouring elements. Every element still gets
the same additions in the same order: reduction loops keep their order, none is split, and nothing is accumulated apart.

The order suits a CPU. Schedules for a GPU start from the loops as they were, so kernels for a GPU must not come here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import IRModule, ir, s_tir, tirx

from bisect_tvm.lowering.kernels import Functions

# Below these, what is won is less than what it takes to compile the kernel; measured with TVM 0.27 on x86-64 with SSE.
FEWEST_STEPS = 100_000
"""Rounds of all loops of a block."""
FEWEST_ADDITIONS = 16
"""Additions to one element of the output; LLVM unrolls fewer (a depthwise 3x3, a pooling) and vectorises on its own."""
FEWEST_LANES = 4
"""Neighbouring elements of the output."""
CACHED = 2**20
"""Bytes of an operand that stay in a cache while it is read again and again."""
MOST_ROWS = 32
"""Rows of the output that share what was read of an operand that does not stay in a cache."""
STRIP = 16
"""Rows, or columns, that are transposed together."""
ALREADY = "tirx.is_scheduled"
"""The attribute with which TVM's own schedulers mark what they have done."""


def scheduled(functions: Functions) -> Functions:
    """The same functions, with faster loops where that is certain to change no bit of any result.

    What is not of a known form, or has loops of unknown extent, stays the same object.
    """
    return {variable: _reordered(f) if isinstance(f, tirx.PrimFunc) else f for variable, f in functions.items()}


def _reordered(function: Any) -> Any:
    """The kernel with all its blocks reordered that can be; the kernel itself where there are none."""
    try:
        if function.attrs and function.attrs.get(ALREADY, False):
            return function
        schedule = s_tir.Schedule(IRModule({"main": function}), error_render_level="none")
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
        nests = [_Nest.of(schedule, block) for block in blocks]
        if any(nest.is_scheduled for nest in nests):
            return function
        nests = [nest for nest in nests if nest.is_plain and prod(axis.extent for axis in nest.axes) >= FEWEST_STEPS]
        changed = [_reorder_sum(schedule, nest) or _reorder_copy(schedule, nest) for nest in nests]
        return schedule.mod["main"] if any(changed) else function
    except Exception:
        # TIR has many forms, of which this module knows a few; a kernel that stays slow is still right.
        return function


@dataclass(frozen=True)
class _Axis:
    """A loop of a nest with the block variable that stands for it."""

    loop: Any
    """Stands for the loop in the schedule."""
    variable: Any
    extent: int
    is_reduced: bool

    def within(self, expressions: Iterable[Any]) -> bool:
        """Whether any of the expressions depends on it."""
        return any(_mentions(expression, self.variable) for expression in expressions)


@dataclass(frozen=True)
class _Nest:
    """A block and the loops around it."""

    block: Any
    handle: Any
    """Stands for the block in the schedule."""
    axes: list[_Axis]
    is_plain: bool
    """Every loop is one axis of the block, of known extent, and the block runs for all values."""
    is_scheduled: bool
    """Somebody chose how to run a loop: on threads, in vectors, unrolled."""

    @classmethod
    def of(cls, schedule: Any, handle: Any) -> "_Nest":
        block, handles = schedule.get(handle), schedule.get_loops(handle)
        loops = [schedule.get(each) for each in handles]
        is_scheduled = any(loop.kind != tirx.ForKind.SERIAL or len(loop.annotations) for loop in loops)
        realize = loops[-1].body if loops else None
        is_plain = bool(
            isinstance(realize, s_tir.SBlockRealize)
            and isinstance(realize.predicate, tirx.IntImm)
            and int(realize.predicate) == 1
            and len(block.iter_vars) == len(loops)
            and all(value.same_as(loop.loop_var) for value, loop in zip(realize.iter_values, loops, strict=True))
            and all(isinstance(loop.extent, tirx.IntImm) and int(loop.min) == 0 and loop.step in (None, 1) for loop in loops)
            and all(axis.iter_type in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce) for axis in block.iter_vars)
            and isinstance(block.body, tirx.BufferStore)
            and len(block.body.indices)
            and not len(block.match_buffers)
        )
        axes = [
            _Axis(each, axis.var, int(loop.extent), axis.iter_type == tirx.IterVar.CommReduce)
            for each, loop, axis in zip(handles, loops, block.iter_vars, strict=True)
        ] if is_plain else []  # fmt: skip
        return cls(block, handle, axes, is_plain, is_scheduled)

    @property
    def column(self) -> _Axis | None:
        """The axis along which the block writes from one element to the next; None unless each step writes one of its own."""
        indices = self.block.body.indices
        of_output = [axis for axis in self.axes if not axis.is_reduced]
        if not all(axis.extent == 1 or any(axis.variable.same_as(index) for index in indices) for axis in of_output):
            return None
        return next((axis for axis in of_output if axis.variable.same_as(indices[-1])), None)


def _reorder_sum(schedule: Any, nest: _Nest) -> bool:
    """Bring the last axis of the output inside the loops of a sum, as in matrix products and convolutions."""
    column = nest.column
    reduced = [axis for axis in nest.axes if axis.is_reduced]
    if column is None or column.extent < FEWEST_LANES or nest.block.init is None:
        return False
    if prod(axis.extent for axis in reduced) < FEWEST_ADDITIONS or not _adds_to_output(nest.block.body):
        return False
    operands = [read for read in nest.block.reads if column.within(_indices(read))]
    if not operands or any(column.within(_indices(read)[:-1]) for read in operands):
        return False  # neighbours in the output would need elements that lie far apart
    outer = [axis.loop for axis in nest.axes if not axis.is_reduced and axis is not column]
    inner = [column.loop]
    row = _row(nest, column, operands)
    if row is not None:
        place = next(i for i, loop in enumerate(outer) if loop is row.loop)
        outer[place], shared = schedule.split(row.loop, [None, _divisor(row.extent, MOST_ROWS)])
        inner.insert(0, shared)
    schedule.reorder(*outer, *(axis.loop for axis in reduced), *inner)
    schedule.decompose_reduction(nest.handle, reduced[0].loop)
    return True


def _row(nest: _Nest, column: _Axis, operands: list[Any]) -> _Axis | None:
    """The axis of the output for all of which the same elements of the large operands are needed."""
    if all(int(read.source.dtype.itemsize) * prod(map(int, read.source.shape)) <= CACHED for read in operands):
        return None
    indices = [index for read in operands for index in _indices(read)]
    rows = [axis for axis in nest.axes if not axis.is_reduced and axis is not column and not axis.within(indices)]
    return next((axis for axis in reversed(rows) if _divisor(axis.extent, MOST_ROWS) > 1), None)


def _reorder_copy(schedule: Any, nest: _Nest) -> bool:
    """Transpose in strips: one step through memory then reads, or writes, several neighbours, where each used to lie apart.

    Importers put a transposed weight before nearly every matrix product, and it takes as long as the reordered product.
    """
    column, load = nest.column, nest.block.body.value
    if column is None or not isinstance(load, ir.TensorLoad) or not len(load.indices):
        return False
    across = next((axis for axis in nest.axes if axis.variable.same_as(load.indices[-1])), None)
    if across is None or across is column or any(axis.is_reduced for axis in nest.axes):
        return False
    width = _divisor(across.extent, STRIP)
    if width < FEWEST_LANES or load.source.same_as(nest.block.body.buffer):
        return False
    _, strip = schedule.split(across.loop, [None, width])
    schedule.reorder(column.loop, strip)
    return True


def _adds_to_output(store: Any) -> bool:
    """Whether the block is `output = output + term` where the term does not depend on the output."""
    value, output = store.value, store.buffer
    return (
        isinstance(value, tirx.Add)
        and isinstance(value.a, ir.TensorLoad)
        and value.a.source.same_as(output)
        and all(a.same_as(b) for a, b in zip(value.a.indices, store.indices, strict=True))
        and not _mentions(value.b, output)
    )


def _mentions(expression: Any, variable: Any) -> bool:
    """Whether a variable, or a buffer, occurs in an expression."""
    return any(variable.same_as(each) for each in tirx.analysis.undefined_vars(expression, []))


def _indices(read: Any) -> list[Any]:
    return [dimension.min for dimension in read.region]


def _divisor(extent: int, most: int) -> int:
    """The largest divisor up to `most`: with any other, the last round would be shorter, and its check inside all loops."""
    return next(each for each in range(most, 0, -1) if extent % each == 0)

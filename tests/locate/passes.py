"""Relax and TIR passes with faults that no operator shows by itself, to be given as the user's `pipeline`."""

import re
from collections.abc import Callable
from typing import Any

import tvm
from tvm import IRModule, relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard

from bisect_tvm.lowering.rewrite import Rewriter

Rewrite = Callable[[Any, dict[Any, Any]], Any]


def rewriting(pattern: Any, rewrite: Rewrite, name: str = "Rewriting") -> tvm.transform.Pass:
    """A pass that rewrites what matches, in all Relax functions."""

    @tvm.transform.module_pass(opt_level=0, name=name)
    def run(module: IRModule, context: Any) -> IRModule:
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                module[variable] = rewrite_call(pattern, rewrite, function)
        return module

    return run


def add_gelu() -> tvm.transform.Pass:
    """Gelu of a sum becomes its tanh approximation."""
    x, y = wildcard(), wildcard()
    return rewriting(
        is_op("relax.nn.gelu")(is_op("relax.add")(x, y)),
        lambda call, match: relax.op.nn.gelu_tanh(relax.op.add(match[x], match[y])),
        "AddGelu",
    )


def matmul_add_relu() -> tvm.transform.Pass:
    """Relu of a product and a sum becomes leaky."""
    x, w, b = wildcard(), wildcard(), wildcard()
    # `rewrite_call` goes on until nothing matches, so what it gives must not match again.
    return rewriting(
        is_op("relax.nn.relu")(is_op("relax.add")(is_op("relax.matmul")(x, w), b)),
        lambda call, match: relax.op.nn.leakyrelu(relax.op.add(relax.op.matmul(match[x], match[w]), match[b]), 0.01),
        "MatmulAddRelu",
    )


def swish_of_sum() -> tvm.transform.Pass:
    """A sum times its own sigmoid, which is a diamond in the dataflow, becomes a gelu."""
    x, y = wildcard(), wildcard()
    total = is_op("relax.add")(x, y)
    return rewriting(
        is_op("relax.multiply")(total, is_op("relax.sigmoid")(total)),
        lambda call, match: relax.op.nn.gelu(relax.op.add(match[x], match[y])),
        "SwishOfSum",
    )


def every_gelu() -> tvm.transform.Pass:
    """Every gelu becomes its tanh approximation: a fault of a single operator."""
    x = wildcard()
    return rewriting(is_op("relax.nn.gelu")(x), lambda call, match: relax.op.nn.gelu_tanh(match[x]), "EveryGelu")


def add_gelu_unless_read_by(reader: str) -> tvm.transform.Pass:
    """As `add_gelu`, where `reader` does not read the gelu."""

    @tvm.transform.module_pass(opt_level=0, name="AddGeluUnlessRead")
    def run(module: IRModule, context: Any) -> IRModule:
        x, y = wildcard(), wildcard()
        pattern = is_op("relax.nn.gelu")(is_op("relax.add")(x, y))
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                spared = _read_by(function, reader)

                def rewrite(call: Any, match: dict[Any, Any], spared: list[Any] = spared) -> Any:
                    spare = any(call.same_as(each) for each in spared)
                    return call if spare else relax.op.nn.gelu_tanh(relax.op.add(match[x], match[y]))

                module[variable] = rewrite_call(pattern, rewrite, function)
        return module

    return run


def _read_by(function: relax.Function, reader: str) -> list[Any]:
    """The calls whose values an operator of this name reads."""
    bound: dict[Any, Any] = {}
    read: list[Any] = []

    def visit(each: Any) -> None:
        if isinstance(each, relax.Call) and isinstance(each.op, tvm.ir.Op) and each.op.name == reader:
            read.extend(each.args)

    for block in function.body.blocks:
        bound |= {binding.var: binding.value for binding in block.bindings}
    relax.analysis.post_order_visit(function, visit)
    return [bound[each] for each in read if each in bound]


def unless(operator: str, faulty: tvm.transform.Pass) -> tvm.transform.Pass:
    """A pass that leaves functions that hold `operator` alone."""
    return where(lambda there: operator not in there, faulty)


def where_many(least: int, faulty: tvm.transform.Pass) -> tvm.transform.Pass:
    """A pass that works on functions with so many operators at least."""
    return where(lambda there: len(there) >= least, faulty)


def where_there_is(operators: set[str], faulty: tvm.transform.Pass) -> tvm.transform.Pass:
    """A pass that works on functions with all of these operators."""
    return where(lambda there: operators <= set(there), faulty)


def where(condition: Callable[[list[str]], bool], faulty: tvm.transform.Pass) -> tvm.transform.Pass:
    """A pass that works on functions whose operators fulfil a condition."""

    @tvm.transform.module_pass(opt_level=0, name="Where")
    def run(module: IRModule, context: Any) -> IRModule:
        chosen = {variable: f for variable, f in module.functions_items() if condition(operators_of(f))}
        if chosen:
            for variable, function in faulty(IRModule(chosen)).functions_items():
                module[variable] = function
        return module

    return run


def operators_of(function: Any) -> list[str]:
    """The names of the Relax operators that a function calls."""
    found: list[str] = []

    def visit(each: Any) -> None:
        if isinstance(each, relax.Call) and isinstance(each.op, tvm.ir.Op):
            found.append(each.op.name)

    if isinstance(function, relax.Function):
        relax.analysis.post_order_visit(function, visit)
    return found


def fusing() -> list[tvm.transform.Pass]:
    """TVM's own passes that fuse operators into kernels; they are right."""
    return [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]


def in_kernels(name: str, change: Callable[[float], float]) -> tvm.transform.Pass:
    """A pass that changes the floating-point constants of TIR kernels whose names match an expression."""

    @tvm.transform.module_pass(opt_level=0, name="InKernels")
    def run(module: IRModule, context: Any) -> IRModule:
        for variable, function in module.functions_items():
            if not isinstance(function, relax.Function) and re.fullmatch(name, variable.name_hint):
                module[variable] = Rewriter(number=lambda value, dtype: change(value))(function)
        return module

    return run

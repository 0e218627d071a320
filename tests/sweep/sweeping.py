"""Many judgements from one build: the parts of a model take weights as inputs, so other weights and inputs need no other build."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from bisect_tvm.lowering.build import Builder, parse_target
from bisect_tvm.lowering.workshop import Workshop
from bisect_tvm.measure import Ruler
from bisect_tvm.model.capture import Program, capture
from bisect_tvm.model.hierarchy import Component, component_tree
from bisect_tvm.model.reference import run_reference
from bisect_tvm.numerics.judge import Judgement
from bisect_tvm.parts import Cutter
from bisect_tvm.probe import Probe
from bisect_tvm.search.walk import Found, Looks, walk
from bisect_tvm.stopwatch import Stopwatch
from tests.quick import UNOPTIMISED
from tests.sweep.zoo import make

SCALES = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)


@dataclass(frozen=True)
class Outcome:
    """What the search says about every part of one model, under one seed and scale."""

    seed: int
    scale: float
    found: Found[Judgement]
    components: Mapping[str, Component]
    """Every part by id, the model itself left out."""
    nodes: Mapping[str, torch.fx.Node]
    values: Mapping[str, Any]
    """The reference's, by graph node."""

    def told(self, id: str) -> str:
        """Where this is and what was said."""
        judgement = self.found.answers[id]
        return f"seed {self.seed}, scale {self.scale}: {id} {self.components[id].operator} {judgement.verdict}: {judgement.reason}"

    def result_of(self, operator: str) -> torch.Tensor:
        """The first result of an operator."""
        value = self.values[self.components[operator].nodes[0]]
        return value if isinstance(value, torch.Tensor) else value[0]

    def input_of(self, operator: str) -> torch.Tensor:
        """The first operand of an operator."""
        (*_, first) = reversed(self.nodes[self.components[operator].nodes[0]].all_input_nodes)
        value: torch.Tensor = self.values[first.name]
        return value


class Sweep:
    """All parts of one kind of model, built once."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        model, inputs = make(kind, 0, 1.0)
        self.program = capture(model, inputs, None, decompose=True)
        self.tree = component_tree(self.program)
        self.workshop = Workshop(Builder(parse_target(UNOPTIMISED)), None, Stopwatch())
        self._cutter: Cutter | None = None

    def search(self, seed: int, scale: float) -> Outcome:
        """Search with other weights and inputs. The model as a whole is not built, for that would hold its weights."""
        program = self._rebound(*make(self.kind, seed, scale))
        reference = run_reference(program)
        clock = self.workshop.clock
        before = self._cutter or Cutter(program, reference.values, self.workshop, clock)
        self._cutter = replace(before, program=program, values=reference.values)  # it keeps what was built
        ruler = Ruler(program, reference, clock)
        probe = Probe(program, self.tree, self._cutter, [ruler], lambda: "not built", lambda: None, lambda line: None)
        found = walk(self.tree, Looks(probe, probe.closely, probe.strictly), exhaustive=True)
        parts = {component.id: component for component in self.tree.walk()[1:]}
        return Outcome(seed, scale, found, parts, program.nodes, reference.values)

    def _rebound(self, model: nn.Module, inputs: Any) -> Program:
        own: Mapping[str, torch.Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        bindings = dict(self.program.bindings)
        for spec in self.program.exported.graph_signature.input_specs:
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                assert spec.target is not None
                path = spec.target.removeprefix(f"{self.program.prefix}.") if self.program.prefix else spec.target
                bindings[spec.arg.name] = own[path].detach()
        tensors = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
        bindings.update(zip(self.program.inputs, tensors, strict=True))
        assert all(bindings[name].shape == value.shape for name, value in self.program.bindings.items())
        return replace(self.program, bindings=bindings, samples=({name: bindings[name] for name in self.program.inputs},))

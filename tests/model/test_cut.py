import copy
from typing import Any

import pytest
import torch
from torch import nn

from bisect_tvm.model.capture import Program
from bisect_tvm.model.cut import boundary, cut, signature_of
from bisect_tvm.model.hierarchy import Component, component_tree, user_outputs
from bisect_tvm.model.reference import run_reference
from tests.model.helpers import assert_equal, captured, results_of, tensors_in, values_of
from tests.model.test_hierarchy import Model, Repeats


class Branches(nn.Module):
    """Values that are read far away, tuples, integers and booleans, several outputs, one of them returned twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.gate = nn.Sequential(nn.Linear(4, 8), nn.GLU())
        self.inner = Repeats()

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        embedded = self.embedding(words)
        values, indices = self.gate(embedded).topk(2)
        masked = embedded.masked_fill(mask.unsqueeze(-1), 0.0)
        hidden = self.inner(masked) + values.sum(-1, keepdim=True) + embedded
        positions = torch.arange(words.shape[1])
        return {"hidden": hidden, "best": indices, "again": hidden, "where": (positions, hidden > 0)}


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0].transpose(0, 1)[-1]


torch.manual_seed(0)
MODELS: dict[str, tuple[nn.Module, Any]] = {
    "blocks": (Model(), torch.randn(2, 4)),
    "branches": (Branches(), (torch.arange(6).reshape(2, 3), torch.tensor([[True, False, False], [False, False, True]]))),
    "lstm": (Sequence(), torch.randn(2, 3, 4)),
    "conv": (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2, return_indices=False), nn.Flatten()),
        torch.randn(2, 1, 6, 6),
    ),
    "half": (nn.Sequential(nn.Linear(4, 4), nn.GELU()).half(), torch.randn(2, 4).half()),
}


@pytest.fixture(
    scope="module", params=[(name, decompose) for name in MODELS for decompose in (True, False)], ids=lambda p: f"{p[0]}-{p[1]}"
)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, Any, Program]:
    name, decompose = request.param
    model, inputs = MODELS[name]
    return model, inputs, captured(model, inputs, decompose=decompose)


def at_depth(tree: Component, depth: int) -> list[Component]:
    """Components that tile the model: those at `depth`, and operators above."""
    return [c for c in tree.walk() if c.depth == depth or (not c.children and c.depth < depth)]


def test_running_all_cuts_in_order_gives_the_whole(case: tuple[nn.Module, Any, Program]) -> None:
    """At every level of the tree, each cut reading what the cuts before it gave."""
    model, inputs, program = case
    tree = component_tree(program)
    values = run_reference(program).values
    expected = results_of(program)
    with torch.no_grad():
        eager = tensors_in(model(*(inputs if isinstance(inputs, tuple) else (inputs,))))
    for one, other in zip(expected, eager, strict=True):
        torch.testing.assert_close(one, other)  # to rounding: a decomposed LSTM adds up in another order
    for depth in range(1 + max(component.depth for component in tree.walk())):
        env: dict[str, Any] = dict(program.bindings)
        for component in at_depth(tree, depth):
            edge = boundary(program, component, values)
            with torch.no_grad():
                given = cut(program, edge, values).graph_module(*[env[node.name] for node in edge.inputs])
            env.update(zip((node.name for node in edge.outputs), given, strict=True))
        assert_equal([env[name] for name in user_outputs(program)], expected)


def test_a_cut_on_recorded_values_gives_the_recorded_values(case: tuple[nn.Module, Any, Program]) -> None:
    """Each alone, so that none sees another's error."""
    _, _, program = case
    recorded, values = values_of(program), run_reference(program).values
    for component in component_tree(program).walk():
        edge = boundary(program, component, values)
        with torch.no_grad():
            given = cut(program, edge, values).graph_module(*[recorded[node.name] for node in edge.inputs])
        assert_equal(list(given), [recorded[node.name] for node in edge.outputs])


def test_a_boundary_is_what_enters_and_leaves(case: tuple[nn.Module, Any, Program]) -> None:
    _, _, program = case
    values = run_reference(program).values
    for component in component_tree(program).walk():
        edge = boundary(program, component, values)
        inside = set(component.nodes)
        assert {node.name for node in edge.inputs}.isdisjoint(inside)
        assert {node.name for node in edge.outputs} <= inside
        assert edge.outputs, "nothing to compare"
        read = {source for node in edge.nodes for source in node.all_input_nodes if source.name not in inside}
        assert set(edge.inputs) == {node for node in read if isinstance(values[node.name], torch.Tensor)}


def test_nothing_is_baked_into_a_cut(case: tuple[nn.Module, Any, Program]) -> None:
    _, _, program = case
    values = run_reference(program).values
    for component in component_tree(program).walk():
        part = cut(program, boundary(program, component, values), values)
        assert not part.state_dict
        assert not part.constants
        assert all(node.op in ("placeholder", "call_function", "output") for node in part.graph.nodes)


def test_cutting_leaves_the_program_as_it_was(case: tuple[nn.Module, Any, Program]) -> None:
    _, _, program = case
    values = run_reference(program).values
    before = str(program.exported.graph)
    for component in component_tree(program).walk():
        cut(program, boundary(program, component, values), values)
    assert str(program.exported.graph) == before


def test_symbolic_sizes_take_the_samples_value() -> None:
    class Flat(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp().reshape(x.shape[0] * x.shape[1], -1).sum(0) / x.shape[0]

    exported = torch.export.export(Flat(), (torch.randn(3, 4, 5),), dynamic_shapes=({0: torch.export.Dim("n", max=50)},))
    program = captured(exported, torch.randn(7, 4, 5))
    values, recorded = run_reference(program).values, values_of(program)
    for component in component_tree(program).walk():
        if not component.nodes:
            continue
        edge = boundary(program, component, values)
        part = cut(program, edge, values)
        for node in part.graph.find_nodes(op="placeholder"):
            assert all(isinstance(size, int) for size in node.meta["val"].shape)
        given = part.graph_module(*[recorded[node.name] for node in edge.inputs])
        assert_equal(list(given), [recorded[node.name] for node in edge.outputs])


# ---------------------------------------------------------------------------------------------------------------- signatures


def signatures(model: nn.Module, x: torch.Tensor, by_name: tuple[str, ...] = ()) -> dict[str, str]:
    program = captured(model, x)
    values = run_reference(program).values
    return {c.id: signature_of(boundary(program, c, values), values, by_name) for c in component_tree(program).walk()}


def test_identical_layers_have_equal_signatures() -> None:
    """Also where their weights differ: weights are inputs of a cut."""
    found = signatures(Model(), torch.randn(2, 4))
    assert found["blocks.0"] == found["blocks.1"]
    assert found["blocks.0.norm"] == found["blocks.1.norm"]
    assert len({found["blocks.0"], found["blocks.0.norm"], found["blocks.0.dense"], found[""]}) == 4


def test_layers_with_a_converter_of_the_user_have_signatures_of_their_own() -> None:
    """It may look at anything, the node's name included."""
    found = signatures(Model(), torch.randn(2, 4), by_name=("sigmoid.default",))
    assert found["blocks.0"] != found["blocks.1"]
    assert found["blocks.0/sigmoid"] != found["blocks.1/sigmoid_1"]
    assert found["blocks.0.norm"] == found["blocks.1.norm"]


def test_signatures_tell_apart_what_makes_other_code() -> None:
    x = torch.randn(2, 4)

    def of(module: nn.Module, x: torch.Tensor = x) -> str:
        return signatures(module, x)[""]

    assert of(nn.Softmax(0)) != of(nn.Softmax(1))
    assert of(nn.LeakyReLU(0.1)) != of(nn.LeakyReLU(0.2))
    assert of(nn.LayerNorm(4, eps=1e-5)) != of(nn.LayerNorm(4, eps=1e-6))
    assert of(nn.Tanh()) != of(nn.Tanh(), torch.randn(3, 4))
    assert of(nn.Tanh()) != of(nn.Tanh(), x.half())
    assert of(nn.Tanh()) == of(nn.Tanh(), torch.randn(2, 4))


def test_signatures_tell_apart_the_order_of_arguments() -> None:
    class Minus(nn.Module):
        def __init__(self, swap: bool) -> None:
            super().__init__()
            self.swap = swap

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (y.exp() - x.exp()) if self.swap else (x.exp() - y.exp())

    def of(swap: bool) -> str:
        program = captured(Minus(swap), (torch.randn(2), torch.randn(2)))
        values = run_reference(program).values
        assert len(component_tree(program).children) == 3
        return signature_of(boundary(program, component_tree(program), values), values)

    # Boundary values are numbered as they are first read, so these two are the same code on other inputs.
    assert of(True) == of(False)


def test_copies_of_a_model_have_the_same_signatures() -> None:
    model, x = Model(), torch.randn(2, 4)
    assert signatures(model, x) == signatures(copy.deepcopy(model), x)


def test_operators_that_work_in_place_can_be_cut() -> None:
    x = torch.randn(2, 4)
    program = captured(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), x, decompose=False)
    values = run_reference(program).values
    (relu,) = (c for c in component_tree(program).walk() if c.operator == "aten.relu_.default")
    made = cut(program, boundary(program, relu, values), values)
    given = torch.randn(2, 4)
    assert_equal(list(made.graph_module(given.clone())), [given.relu()])

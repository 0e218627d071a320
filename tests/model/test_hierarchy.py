from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from bisect_tvm.model.hierarchy import Component, component_tree, dataflow
from tests.model.helpers import captured, tree_of

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def rows(tree: Component) -> list[tuple[str, str | None]]:
    return [(component.path, component.operator) for component in tree.walk()]


def modules(tree: Component) -> list[str]:
    return [component.path for component in tree.walk() if component.kind == "module"]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.dense = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(self.norm(x))  # owned by the block
        return x + self.dense(y)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return functional.softmax(x, dim=-1)  # owned by the model


def test_the_tree_is_that_of_the_module_calls() -> None:
    tree = tree_of(Model(), X, decompose=False)
    assert rows(tree) == [
        ("", None),
        *[
            row
            for path in ("blocks.0", "blocks.1")
            for row in [
                (path, None),
                (f"{path}.norm", None),
                (f"{path}.norm", "aten.layer_norm.default"),
                (path, "aten.sigmoid.default"),
                (f"{path}.dense", None),
                (f"{path}.dense", "aten.linear.default"),
                (path, "aten.add.Tensor"),
            ]
        ],
        ("", "aten.softmax.int"),
    ]


def test_what_every_tree_obeys() -> None:
    for decompose in (True, False):
        program = captured(Model(), X, decompose=decompose)
        tree = component_tree(program)
        components = tree.walk()
        by_id = {component.id: component for component in components}
        assert len(by_id) == len(components)
        assert tree.parent is None
        assert tree.depth == 0
        order = list(program.nodes)
        for component in components:
            for child in component.children:
                assert child.parent == component.id
                assert child.depth == component.depth + 1
            positions = [order.index(name) for name in component.nodes]
            assert positions == sorted(positions)
            if component.children:
                assert component.nodes == tuple(name for child in component.children for name in child.nodes)
                assert component.operator is None
            else:
                assert component.kind == "operator"
                assert component.operator == str(program.nodes[component.nodes[0]].target)


def test_classes_are_named_in_full() -> None:
    by_path = {component.path: component for component in tree_of(Model(), X).walk() if component.kind != "operator"}
    assert by_path[""].module_class == f"{__name__}.Model"
    assert by_path["blocks.1"].module_class == f"{__name__}.Block"
    assert by_path["blocks.1.norm"].module_class == "torch.nn.modules.normalization.LayerNorm"


def source_text(component: Component) -> str:
    assert component.source is not None
    file, _, line = component.source.rpartition(":")
    assert Path(file) == Path(__file__)
    return Path(file).read_text().splitlines()[int(line) - 1]


def test_operators_know_the_users_line() -> None:
    operators = {c.operator: c for c in tree_of(Model(), X, decompose=False).walk() if c.kind == "operator"}
    assert "# owned by the block" in source_text(operators["aten.sigmoid.default"])
    assert "# owned by the model" in source_text(operators["aten.softmax.int"])
    # Run by torch's own Linear: the line is where the user called it.
    assert "self.dense(y)" in source_text(operators["aten.linear.default"])


def test_operators_know_the_users_line_after_decomposition() -> None:
    for component in tree_of(Model(), X).walk():
        if component.kind == "operator":
            source_text(component)


class Repeats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared(torch.exp(self.shared(x)))


def test_a_module_called_twice_is_two_components() -> None:
    tree = tree_of(Repeats(), X, decompose=False)
    assert modules(tree) == ["shared", "shared.0", "shared.1", "shared@1", "shared.0@1", "shared.1@1"]
    first, _, second = tree.children
    assert set(first.nodes).isdisjoint(second.nodes)
    assert [child.operator for child in tree.children] == [None, "aten.exp.default", None]


def test_a_module_called_three_times_in_a_loop() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = nn.Tanh()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = self.step(x)
            return x

    assert modules(tree_of(Loop(), X)) == ["step", "step@1", "step@2"]


def test_one_module_under_two_names() -> None:
    class Aliased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = self.first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.tanh(self.first(x)))

    tree = tree_of(Aliased(), X, decompose=False)
    assert len(modules(tree)) == 2
    assert len({component.id for component in tree.walk()}) == len(tree.walk())
    assert [c.operator for c in tree.walk() if c.kind == "operator"] == [
        "aten.linear.default", "aten.tanh.default", "aten.linear.default",
    ]  # fmt: skip


def test_one_layer_shared_by_two_parents() -> None:
    class Parent(nn.Module):
        def __init__(self, act: nn.Module) -> None:
            super().__init__()
            self.act = act

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(x) + 1

    class Shares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            act = nn.Tanh()
            self.left, self.right = Parent(act), Parent(act)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.right(self.left(x))

    tree = tree_of(Shares(), X)
    assert len({component.id for component in tree.walk()}) == len(tree.walk())
    left, right = tree.children
    assert (left.path, right.path) == ("left", "right")
    for parent in (left, right):
        assert [child.operator for child in parent.children] == [None, "aten.add.Tensor"]
        assert [child.operator for child in parent.children[0].children] == ["aten.tanh.default"]


def test_what_nothing_uses_is_left_out() -> None:
    class Wasteful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Tanh()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.unused(x)
            self.count += x.cosh().sum()  # feeds a buffer only
            return x.exp()

    assert rows(tree_of(Wasteful(), X)) == [("", None), ("", "aten.exp.default")]


def test_outputs_of_a_tuple_belong_to_their_producer() -> None:
    class Split(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values, indices = x.topk(2)
            left, right = x.split(2, dim=1)
            return values + left * right + indices

    program = captured(Split(), X)
    tree = component_tree(program)
    operators = {component.operator: component for component in tree.walk() if component.kind == "operator"}
    assert not any("getitem" in str(operator) for operator in operators)
    assert len(operators["aten.topk.default"].nodes) == 3
    assert sorted(name for c in tree.children for name in c.nodes) == sorted(
        name for name, node in program.nodes.items() if node.op == "call_function"
    )


def test_a_model_without_operators() -> None:
    class Identity(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    assert rows(tree_of(Identity(), X)) == [("", None)]


def test_dataflow_follows_the_arguments() -> None:
    program = captured(nn.Sequential(nn.Tanh(), nn.Sigmoid(), nn.ReLU()), X)
    flow = dataflow(program)
    chain = [name for name, node in program.nodes.items() if node.op in ("placeholder", "call_function")]
    assert len(chain) == 4
    assert all(flow.has_edge(source, reader) for source, reader in pairwise(chain))
    assert set(flow.nodes) == set(program.nodes)

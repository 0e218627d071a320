from typing import Any

import pytest
import torch
from torch import nn

from bisect_tvm.model.exact import is_exact, is_steady
from bisect_tvm.model.reference import is_assertion
from tests.apply import Apply
from tests.model.helpers import captured

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))

STEADY = {
    "view": lambda x: x.view(4, 2),
    "sort, descending": lambda x: x.sort(-1, descending=True).values,
    "topk": lambda x: x.topk(2).values,
    "max of a dimension": lambda x: x.max(-1).values,
    "max, dimension kept": lambda x: x.amax(-1, keepdim=True),
    "split": lambda x: x.split(2, dim=1)[1],
    "max_pool": lambda x: nn.functional.max_pool2d(x[None], 2),
    "cast between floats": lambda x: x.half(),
}
ROUNDS = {
    "tanh": torch.tanh,
    "sum": lambda x: x.sum(-1, keepdim=True),
    "softmax": lambda x: x.softmax(-1),
    "multiplication": lambda x: x * 3,
    "index_put that adds": lambda x: torch.zeros(4).index_put((torch.tensor([0, 0]),), x[0, :2], accumulate=True),
    "scatter that adds": lambda x: x.scatter(1, torch.tensor([[0, 0]]), x[:1, :2], reduce="add"),
}
JUMPS = {
    "round": torch.round,
    "comparison": lambda x: x > 0,
    "argmax": lambda x: x.argmax(-1),
    "sign": torch.sign,
    "cast to integer": lambda x: x.to(torch.int32),
    "cast to boolean": lambda x: x.bool(),
}


def nodes_of(function: Any) -> list[torch.fx.Node]:
    nodes = captured(Apply(function), X).nodes.values()
    return [node for node in nodes if node.op == "call_function" and not is_assertion(node)]


@pytest.mark.parametrize("name", STEADY)
def test_what_moves_or_selects_is_exact_and_steady(name: str) -> None:
    nodes = nodes_of(STEADY[name])
    assert all(is_exact(node.target) for node in nodes)
    assert all(is_steady(node) for node in nodes)


@pytest.mark.parametrize("name", ROUNDS)
def test_what_rounds_is_not_steady(name: str) -> None:
    assert not all(is_steady(node) for node in nodes_of(ROUNDS[name]))


@pytest.mark.parametrize("name", JUMPS)
def test_what_jumps_is_exact_but_not_steady(name: str) -> None:
    nodes = nodes_of(JUMPS[name])
    assert all(is_exact(node.target) for node in nodes)
    assert not all(is_steady(node) for node in nodes)

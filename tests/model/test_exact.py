from typing import Any

import pytest
import torch
from torch import nn

from bisect_tvm.model.exact import is_exact, is_made_for_tiny_numbers, is_steady, jumps_and_rounds, loses_near_zero, rounds_nothing
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
    "cast to a longer format": lambda x: x.double(),
}
ROUNDS = {
    "tanh": torch.tanh,
    "sum": lambda x: x.sum(-1, keepdim=True),
    "softmax": lambda x: x.softmax(-1),
    "multiplication": lambda x: x * 3,
    "index_put that adds": lambda x: torch.zeros(4).index_put((torch.tensor([0, 0]),), x[0, :2], accumulate=True),
    "scatter that adds": lambda x: x.scatter(1, torch.tensor([[0, 0]]), x[:1, :2], reduce="add"),
    "cast to a shorter format": lambda x: x.half(),
    "cast to a format of the same length": lambda x: x.bfloat16(),
    "cast of whole numbers": lambda x: torch.arange(3).to(torch.float32),
    "round to decimals": lambda x: x.round(decimals=1),
}
JUMPS_AND_ROUNDS = {
    "remainder": lambda x: x % 0.3,
    "fmod": lambda x: torch.fmod(x, 0.3),
    "floor_divide": lambda x: x // 0.3,
    "division, truncated": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "round to decimals": lambda x: x.round(decimals=1),
}
JUMPS = {
    "places of a sort": lambda x: x.sort(-1, descending=True).indices,
    "places of topk": lambda x: x.topk(2).indices,
    "places of the largest": lambda x: x.max(-1),
    "argsort": lambda x: x.argsort(-1),
    "places in a pool": lambda x: nn.functional.max_pool2d(x[None], 2, return_indices=True),
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
    assert all(rounds_nothing(node) for node in nodes)


@pytest.mark.parametrize("name", ROUNDS)
def test_what_rounds_is_not_steady(name: str) -> None:
    assert not all(is_steady(node) for node in nodes_of(ROUNDS[name]))
    assert not all(rounds_nothing(node) for node in nodes_of(ROUNDS[name]))


@pytest.mark.parametrize("name", JUMPS)
def test_what_jumps_is_exact_but_not_steady(name: str) -> None:
    nodes = nodes_of(JUMPS[name])
    assert all(is_exact(node.target) for node in nodes)
    assert all(rounds_nothing(node) for node in nodes)
    assert not all(is_steady(node) for node in nodes)
    assert not any(jumps_and_rounds(node) for node in nodes)


@pytest.mark.parametrize("name", JUMPS_AND_ROUNDS)
def test_what_jumps_and_rounds(name: str) -> None:
    nodes = nodes_of(JUMPS_AND_ROUNDS[name])
    assert any(jumps_and_rounds(node) for node in nodes)
    assert not all(rounds_nothing(node) for node in nodes)


def test_what_loses_digits_near_zero_and_what_is_made_to_keep_them() -> None:
    aten = torch.ops.aten
    assert all(is_made_for_tiny_numbers(function) for function in (aten.log1p.default, aten.expm1.default))
    assert not any(is_made_for_tiny_numbers(function) for function in (aten.tanh.default, aten.log.default, aten.relu.default))
    assert all(loses_near_zero(function) for function in (aten.log1p.default, aten.tanh.default, aten.elu.default))
    assert not any(loses_near_zero(function) for function in (aten.add.Tensor, aten.mm.default, aten.exp.default, aten.where.self))

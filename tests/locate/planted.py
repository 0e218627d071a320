"""Models with faults whose places are known: converters for a convert map, and small networks to put them in."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from tvm import relax

Converter = Callable[[Any, Any], Any]


def gelu_exact(node: Any, importer: Any) -> Any:
    """What TVM's own converter does."""
    return importer.block_builder.emit(relax.op.nn.gelu(importer.env[node.args[0]]))


def relu_plus_one(node: Any, importer: Any) -> Any:
    """Off by one, everywhere."""
    relu = importer.block_builder.emit(relax.op.nn.relu(importer.env[node.args[0]]))
    return importer.block_builder.emit(relax.op.add(relu, relax.const(1.0, "float32")))


def shifted(operator: Callable[[Any], Any], by: float = 1e-3) -> Converter:
    """A converter to an operator of one argument, and a little more."""

    def convert(node: Any, importer: Any) -> Any:
        value = importer.block_builder.emit(operator(importer.env[node.args[0]]))
        return importer.block_builder.emit(relax.op.add(value, relax.const(by, "float32")))

    return convert


def refuse(node: Any, importer: Any) -> Any:
    """A converter that does not know what to do."""
    raise NotImplementedError(f"nobody has written {node.target} yet")


def at(path: str, faulty: Converter, sound: Converter) -> Converter:
    """A converter that is faulty in one submodule only."""

    def convert(node: Any, importer: Any) -> Any:
        here = [place for place, _ in node.meta["nn_module_stack"].values()][-1]
        return (faulty if here == path else sound)(node, importer)

    return convert


class Layer(nn.Module):
    """Normalise, widen, gelu, add what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dense = nn.Linear(width, width)
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.act(self.dense(self.norm(x)))


class SumAndGelu(nn.Module):
    """Gelu of a sum, around which something is computed."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.randn(width))
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.act(x * 2 + self.shift)


class Perceptron(nn.Module):
    """Relu of a dense layer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.act(self.dense(x))


def seeded(make: Callable[[], nn.Module], *shape: int) -> tuple[nn.Module, torch.Tensor]:
    """A model and an input that are the same in every run."""
    torch.manual_seed(0)
    return make().eval(), torch.randn(*(shape or (3, 8)))


class Stack(nn.Module):
    """Identical layers, then one of another kind."""

    def __init__(self, layers: int, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def stack(layers: int) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Stack(layers).eval(), torch.randn(3, 16)


class Hidden(nn.Module):
    """Two faults that nobody can see from outside.

    The error of gelu drowns in a comparison (`early`) and that of relu is a constant, which softmax takes away (`late`).
    """

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.GELU()
        self.dense = nn.Linear(8, 8)
        self.late = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        saturated = torch.clamp(self.early(x) - 100, min=0)
        return torch.softmax(self.late(self.dense(x + saturated)), dim=-1)


class HiddenAndSeen(nn.Module):
    """The same, with a third fault that shows at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = Hidden()
        self.seen = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.seen(self.hidden(x))


class Choice(nn.Module):
    """An error that is too small to change which element is the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x).argmax(-1)


class Twice(nn.Module):
    """One module, called twice, with relu between."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(8, 8), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared(torch.relu(self.shared(x)))


class Functional(nn.Module):
    """An operator that no submodule owns."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.selu(self.dense(x))

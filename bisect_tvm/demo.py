"""The embedded example: two faults in small models, located while the reader waits.

The first scene is an old forum thread's story. In float32 an operator, a submodule and the whole model deviate by
more and more, and nothing stands out; beside float64 the fault does. The second scene is no staging: a network with
SELU, as TVM converts it. What is said about them is read off the reports, so it stays true when TVM changes.
"""

import textwrap
from collections.abc import Callable

import torch
from torch import nn

from bisect_tvm.locating import locate
from bisect_tvm.lowering.approximations import gelu_tanh
from bisect_tvm.numerics.verdict import Verdict
from bisect_tvm.report.report import Entry, Report

LAYERS, HIDDEN, HEADS, VOCABULARY, TOKENS = 3, 64, 2, 100, 12

Write = Callable[[str], None]
Progress = Callable[[str], None] | None


class Embeddings(nn.Module):
    """Words and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCABULARY, HIDDEN)
        self.position_embeddings = nn.Embedding(TOKENS, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Embed a batch of sentences."""
        positions = torch.arange(words.shape[1])
        embedded: torch.Tensor = self.LayerNorm(self.word_embeddings(words) + self.position_embeddings(positions))
        return embedded


class SelfAttention(nn.Module):
    """Attention written out, softmax and all."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Let every word look at every other."""
        batch, tokens, _ = hidden.shape
        query, key, value = (
            projection(hidden).view(batch, tokens, HEADS, HIDDEN // HEADS).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        scores = torch.matmul(query, key.transpose(-1, -2)) / (HIDDEN // HEADS) ** 0.5
        context = torch.matmul(torch.softmax(scores, dim=-1), value)
        return context.transpose(1, 2).reshape(batch, tokens, HIDDEN)


class Output(nn.Module):
    """Project, add what came in, normalise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN)

    def forward(self, hidden: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Close a residual block."""
        normalised: torch.Tensor = self.LayerNorm(self.dense(hidden) + residual)
        return normalised


class Attention(nn.Module):
    """Self-attention and its output."""

    def __init__(self) -> None:
        super().__init__()
        self.self = SelfAttention()
        self.output = Output(HIDDEN)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """One residual block of attention."""
        attended: torch.Tensor = self.output(self.self(hidden), hidden)
        return attended


class Intermediate(nn.Module):
    """Widen and apply gelu."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.act = nn.GELU()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The inside of the feed-forward block."""
        widened: torch.Tensor = self.act(self.dense(hidden))
        return widened


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.intermediate = Intermediate()
        self.output = Output(4 * HIDDEN)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Attention, then feed-forward."""
        attended = self.attention(hidden)
        result: torch.Tensor = self.output(self.intermediate(attended), attended)
        return result


class Encoder(nn.Module):
    """The layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """All layers in turn."""
        for layer in self.layer:
            hidden = layer(hidden)
        return hidden


class Bert(nn.Module):
    """A small encoder with random weights, named as Hugging Face names its BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = Encoder()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Encode a batch of sentences."""
        encoded: torch.Tensor = self.encoder(self.embeddings(words))
        return encoded


class SeluNetwork(nn.Module):
    """A small self-normalising network."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(16, 32)
        self.act = nn.SELU()
        self.head = nn.Linear(32, 4)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Classify."""
        scores: torch.Tensor = self.head(self.act(self.hidden(features)))
        return scores


def bert() -> tuple[nn.Module, torch.Tensor]:
    """The model and input of the first scene, the same each time; the caller's random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Bert().eval(), torch.randint(VOCABULARY, (2, TOKENS))


def selu_network() -> tuple[nn.Module, torch.Tensor]:
    """The model and input of the second scene."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SeluNetwork().eval(), torch.randn(8, 16)


def run_demo(write: Write, progress: Progress = None) -> tuple[Report, Report]:
    """Compute both scenes, tell them through `write`, and return their reports."""
    write("Scene 1. A small BERT-like encoder, converted with gelu replaced by its tanh approximation.\n")
    model, words = bert()
    first = locate(model, words, convert_map={"gelu.default": gelu_tanh}, progress=progress)
    write(tell_first(first))
    write(f"\n{first}\n")
    write("Scene 2. A small network with SELU, converted by TVM exactly as released.\n")
    model, features = selu_network()
    second = locate(model, features, progress=progress)
    write(f"{second}\n")
    write(tell_second(second))
    return first, second


def tell_first(report: Report) -> str:
    """Three nested parts in both precisions, and what the columns show."""
    rows = [f"{'deviation from PyTorch':<44}{'float32':>10}{'float64':>10}"]
    for what, entry in _nested(report):
        name = f"{what} {entry.operator or entry.path}"
        rows.append(f"{name:<44}{_number(entry.deviation32):>10}{_number(entry.deviation64):>10}")
    if report.culprits:
        conclusion = (
            "In float32 alone, the model's deviation might be rounding that piled up. In float64 rounding is gone, and "
            f"what still deviates is computed differently: {_found(report)}."
        )
    else:
        conclusion = f"No part was found to deviate by more than rounding explains; the verdict is {report.verdict}."
    return "\n".join([*rows, "", *textwrap.wrap(conclusion, 100)])


def tell_second(report: Report) -> str:
    """One sentence on what TVM does with SELU today."""
    if report.culprits:
        deviation = report.root.deviation64
        size = "" if deviation is None else f"; the network's output is off by {deviation:.1%}, in float64 as well"
        told = f"Nothing was staged here: this TVM itself computes {_found(report)} differently{size}."
    else:
        told = f"No part was found that this TVM computes differently; the verdict is {report.verdict}."
    return textwrap.fill(told, 100)


def _found(report: Report) -> str:
    first, count = report.culprits[0], len(report.culprits)
    others = f" and {count - 1} more, which the report names" if count > 1 else ""
    return f"{first.operator or first.module_class} in {first.path or 'the model'}{others}"


def _nested(report: Report) -> list[tuple[str, Entry]]:
    """The three that the story compares: an operator that agrees, the largest submodule that agrees, and the model."""
    rows: list[tuple[str, Entry]] = []
    agreeing = [entry for entry in report.tree[1:] if entry.verdict in (Verdict.FAITHFUL, Verdict.ROUNDING)]
    modules = [entry for entry in agreeing if entry.kind == "module"]
    module = max(modules, key=_size, default=None)
    inside = [entry for entry in agreeing if entry.kind == "operator" and (module is None or _is_in(entry, module))]
    if operator := max(inside, key=_size, default=None):
        rows.append(("operator", operator))
    if module is not None:
        rows.append(("submodule", module))
    return [*rows, ("model", report.root)]


def _size(entry: Entry) -> tuple[int, float]:
    return entry.operators, entry.deviation32 or 0.0


def _is_in(entry: Entry, module: Entry) -> bool:
    return f"{entry.path}.".startswith(f"{module.path}.")


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:.1e}"

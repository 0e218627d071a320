"""Reports made up by hand: no torch, no TVM."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from bisect_tvm.numerics.verdict import Element, Verdict
from bisect_tvm.report.report import Cost, Entry, Explanation, Kept, Proof, Report, Workaround

CLEAN = (1e-7, 2e-16, 1.1)
"""float32 and float64 deviation, excess64."""


@dataclass(frozen=True)
class Node:
    """A component as a test writes it down; `report` flattens it."""

    name: str
    verdict: Verdict = Verdict.FAITHFUL
    numbers: tuple[float | None, float | None, float | None] = CLEAN
    children: Sequence["Node"] = field(default=())
    module_class: str = "my.models.Block"
    culprit: bool = False
    reason: str = "agrees"
    source: str | None = "/home/me/model.py:12"


def operator(name: str, **fields: object) -> Node:
    """An operator (its name starts with ``aten.``)."""
    return replace(Node(name), **fields)  # type: ignore[arg-type]


def culprit(name: str, deviation: float = 1e-4) -> Node:
    """An operator that TVM computes by another formula."""
    return Node(name, Verdict.FORMULA, (deviation, deviation, deviation / 1e-16), culprit=True, reason="wrong formula")


def report(model: Node, summary: str = "One operator is computed by another formula.") -> Report:
    """The report of a model."""
    entries = tuple(_flatten(model, None, "", 0))
    culprits = tuple(entry.id for entry, node in zip(entries, _nodes(model), strict=True) if node.culprit)
    return Report(
        verdict=model.verdict,
        summary=summary,
        tree=entries,
        culprit_ids=culprits,
        environment={"torch": "2.13.0", "apache-tvm": "0.27.0.post1", "target": "llvm"},
        cost=Cost(builds=3, seconds={"export": 1.25, "build": 2.5}),
    )


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _flatten(node: Node, parent: Entry | None, prefix: str, number: int) -> Iterator[Entry]:
    is_operator = node.name.startswith("aten.")
    path = prefix if is_operator or parent is None else f"{prefix}.{node.name}".lstrip(".")
    entry = Entry(
        id="" if parent is None else f"{path}/{node.name}_{number}" if is_operator else path,
        parent=None if parent is None else parent.id,
        depth=0 if parent is None else parent.depth + 1,
        kind="model" if parent is None else "operator" if is_operator else "module",
        path=path,
        operator=node.name if is_operator else None,
        module_class=node.module_class,
        source=node.source if is_operator else None,
        verdict=node.verdict,
        reason=node.reason,
        deviation32=node.numbers[0],
        deviation64=node.numbers[1],
        excess32=None,
        excess64=node.numbers[2],
        worst=Element(0, (1, 2, 37), -0.15921735, -0.15880800, "float64") if node.culprit else None,
        operators=1,
        stated=(node.verdict,),
    )
    yield entry
    for position, child in enumerate(node.children):
        yield from _flatten(child, entry, path, position)


def layer(name: str, deviation: float | None) -> Node:
    """A transformer layer; its gelu deviates by `deviation`, or agrees."""
    wrong = deviation is not None
    verdict = Verdict.FORMULA if wrong else Verdict.FAITHFUL
    numbers = (deviation, deviation, 1e11) if wrong else CLEAN
    gelu = culprit("aten.gelu.default", deviation) if deviation is not None else operator("aten.gelu.default")
    linear = Node("dense", children=(operator("aten.linear.default"),), module_class="torch.nn.Linear")
    return Node(
        name,
        verdict,
        numbers,
        children=(
            Node("attention", children=(linear, operator("aten.softmax.int")), module_class="my.models.Attention"),
            Node(
                "intermediate",
                verdict,
                numbers,
                children=(linear, Node("act", verdict, numbers, children=(gelu,), module_class="torch.nn.GELU")),
                module_class="my.models.Intermediate",
            ),
            Node("norm", children=(operator("aten.layer_norm.default"),), module_class="torch.nn.LayerNorm"),
        ),
        module_class="my.models.Layer",
    )


def bert(deviations: Sequence[float | None]) -> Report:
    """An encoder with one layer for each number."""
    wrong = any(deviation is not None for deviation in deviations)
    verdict = Verdict.FORMULA if wrong else Verdict.FAITHFUL
    numbers = (1e-3, 1e-3, 1e12) if wrong else CLEAN
    layers = tuple(layer(f"layer.{number}", deviation) for number, deviation in enumerate(deviations))
    embeddings = Node("embeddings", children=(operator("aten.embedding.default"),), module_class="my.models.Embeddings")
    encoder = Node("encoder", verdict, numbers, children=layers, module_class="my.models.Encoder")
    return report(Node("", verdict, numbers, children=(embeddings, encoder), module_class="my.models.Bert"))


def proved(original: Report, *necessary: bool | None) -> Report:
    """With a proof that the culprits are to blame; each culprit is a kind of its own where that is asked for."""
    pairs = zip(original.culprits, necessary, strict=False)
    kept = tuple(Kept((entry.id,), entry.deviation32, entry.deviation64, needed) for entry, needed in pairs)
    return replace(original, proof=Proof(True, "TVM agrees", 1.2e-7, 3e-16, 1.5, kept))


def explained(original: Report, workarounds: Sequence[Workaround], tried: Sequence[str] = ()) -> Report:
    """With one explanation for all culprits."""
    where = "also with TVM's shortest pipeline at opt-level 0"
    converters = ("gelu.default: /venv/lib/tvm/relax/frontend/torch/base_fx_graph_translator.py:123 (Importer._gelu)",)
    told = ("%gelu = aten.gelu.default(%x)", "R.nn.gelu_tanh(x)", "@T.prim_func ...")
    explanation = Explanation(
        original.culprit_ids, "importer or lowering", where, *told, converters, tuple(workarounds), tuple(tried)
    )
    return replace(original, explanations=(explanation,))

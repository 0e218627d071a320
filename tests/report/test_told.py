"""What the text tells beside tree and culprits, and that it fits the screen whatever there is to tell."""

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from bisect_tvm.numerics.verdict import Element, Verdict
from bisect_tvm.report.report import Cost, Entry, Explanation, Kept, Proof, Report, Workaround
from bisect_tvm.report.text import HEIGHT, render_text
from tests.report.arbitrary import reports
from tests.report.synthetic import CLEAN, Node, bert, culprit, explained, operator, proved, report

CODE = "def gelu(node, importer):\n    x = importer.env[node.args[0]]\n    return importer.block_builder.emit(relax.op.nn.gelu(x))"
CURE = Workaround("convert_map with an exact gelu", CODE, 1.2e-7, 3e-16, whole=True)


def told(shown: Report, width: int = 100) -> list[str]:
    found = render_text(shown, width).split("\n")
    assert len(found) <= HEIGHT
    assert all(cell_len(line) <= width for line in found)
    return found


def section(found: list[str], first: str) -> list[str]:
    """The lines from the one that begins with `first` to the next blank one."""
    start = next(number for number, line in enumerate(found) if line.startswith(first))
    return found[start : found.index("", start)]


@given(report=reports(most=12), width=st.integers(60, 130), colour=st.booleans())
@settings(deadline=None, max_examples=60)
def test_every_report_fits_the_screen(report: Report, width: int, colour: bool) -> None:
    rendered = render_text(report, width, colour)
    found = rendered.split("\n")
    assert len(found) <= HEIGHT
    if not colour:
        assert all(cell_len(line) <= max(width, 80) for line in found)
        assert not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in rendered if letter != "\n")
    assert f"{report.verdict}; deviation of the whole model" in rendered


def everything(culprits: int, kinds: int, lines_of_code: int) -> Report:
    """A report in which every section has more to tell than there is room for."""
    operators = [
        replace(culprit(f"aten.op{number}.default", 1e-6 * (number + 1)), source=f"m.py:{number}") for number in range(culprits)
    ]
    unresolved = [
        operator(
            f"aten.bad{number}.default", verdict=Verdict.UNRESOLVED, numbers=(None, None, None), reason=f"TVM says {number} " * 50
        )
        for number in range(6)
    ]
    made = report(Node("", Verdict.FORMULA, CLEAN, [*operators, *unresolved]), summary="Word " * 100)
    cure = replace(CURE, what="word " * 60, code="\n".join(["pass"] * lines_of_code))
    explanations = tuple(
        Explanation((id,), "pass", "word " * 80, "", "", "", ("_gelu: /x/y.py:1",), (cure,), ()) for id in made.culprit_ids[:kinds]
    )
    return replace(
        made,
        environment={**{f"option {number}": "value" for number in range(60)}, "samples": "9"},
        cost=Cost(9, {f"step {number}": 9.9 for number in range(30)}, 9),
        proof=Proof(False, "", 1e-3, 1e-3, 1e9, tuple(Kept((id,), 1e-3, 1e-3, True) for id in made.culprit_ids[:kinds])),
        explanations=explanations,
        unfinished="word " * 100,
    )


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize(("culprits", "kinds", "code"), [(1, 1, 3), (1, 1, 60), (3, 3, 3), (9, 9, 9), (300, 12, 1)])
def test_no_section_is_crowded_out(culprits: int, kinds: int, code: int, width: int) -> None:
    found = told(everything(culprits, kinds, code), width)
    rows = found.index("") + 1
    assert found[rows].startswith("component")
    assert len(section(found[rows:], "component")) >= 4
    for beginning in ("Incomplete: ", "culprit" if culprits == 1 else f"{culprits} culprits", "proof: ", "6 unresolved"):
        assert any(line.startswith(beginning) for line in found), beginning
    assert any("stage: pass" in line for line in found)
    assert any(line.startswith("workaround (checked): ") for line in found)
    assert any(line.startswith("9 TVM builds to find, 9 to prove and explain, ") for line in found)


def test_proof_of_one_kind() -> None:
    assert section(told(proved(bert([1e-5, 1e-4]), True)), "proof")[0] == (
        "proof: with the 2 culprits replaced by PyTorch's values the model agrees to 3.0e-16 (float64),"
    )
    assert section(told(proved(bert([1e-5, 1e-4]), True)), "proof")[1:] == ["  1.2e-07 (float32): sufficient"]


def test_proof_of_several_kinds() -> None:
    names = ("gelu", "elu", "relu", "tanh", "add", "mul")
    nodes = [culprit(f"aten.{name}.default", 1e-4 / (number + 1)) for number, name in enumerate(names)]
    model = report(Node("", Verdict.FORMULA, CLEAN, nodes))
    assert section(told(proved(model, True, False, None, True, True, True)), "proof")[2:] == [
        "  with aten.gelu.default left in, it is off by 1.0e-04: necessary",
        "  with aten.elu.default left in, it agrees to 5.0e-05: not seen in the whole model",
        "  with aten.relu.default left in, it could not be judged",
        "  with aten.tanh.default left in, it is off by 2.5e-05: necessary",
        "  ... 2 more (see the JSON)",
    ]


@pytest.mark.parametrize(
    ("proof", "expected"),
    [
        (
            Proof(False, "off", 2e-5, 1e-5, 1e9, ()),
            "proof: with the culprit replaced by PyTorch's values the model is still off by 1.0e-05 (float64), 2.0e-05 (float32): "
            "not sufficient, what remains is unexplained",
        ),
        (
            Proof(None, "TVM cannot compile it.", None, None, None, ()),
            "proof: none: with the culprit replaced by PyTorch's values the model could not be judged: TVM cannot compile it.",
        ),
        (
            Proof(True, "the culprits give all that the model returns", None, None, None, ()),
            "proof: with the culprit replaced by PyTorch's values the model agrees: sufficient: "
            "the culprits give all that the model returns",
        ),
        (
            Proof(True, "agrees", 1e-7, None, None, ()),
            "proof: with the culprit replaced by PyTorch's values the model agrees to 1.0e-07 (float32): sufficient",
        ),
    ],
)
def test_what_the_proof_may_say(proof: Proof, expected: str) -> None:
    assert " ".join(" ".join(section(told(replace(bert([1e-4]), proof=proof)), "proof")).split()) == expected


def test_stage_and_workaround_with_its_code() -> None:
    assert section(told(explained(bert([1e-4]), [CURE, CURE])), "stage") == [
        "stage: importer or lowering; converted by Importer._gelu at base_fx_graph_translator.py:123; also",
        "  with TVM's shortest pipeline at opt-level 0",
        "workaround (checked): convert_map with an exact gelu: the model then deviates by 3.0e-16 (float64),",
        "  1.2e-07 (float32)",
        "    def gelu(node, importer):",
        "        x = importer.env[node.args[0]]",
        "        return importer.block_builder.emit(relax.op.nn.gelu(x))",
    ]


def test_code_is_shown_whole_or_not_at_all() -> None:
    for code in ("x = 1\n" * 30, "x" * 101, "x\x1b[31m"):
        text = "\n".join(told(explained(bert([1e-4]), [replace(CURE, code=code)])))
        assert "(code in the JSON)" in " ".join(text.split())
        assert "    x" not in text


def test_workaround_for_the_culprit_alone() -> None:
    text = " ".join(" ".join(told(explained(bert([1e-4]), [replace(CURE, whole=False, deviation32=None)]))).split())
    assert "exact gelu: the culprit alone then deviates by 3.0e-16 (float64) def gelu" in text


def test_no_workaround() -> None:
    tried = ["a fused kernel: still 1e-4", "opt-level 0"]
    assert "no workaround found; tried: a fused kernel: still 1e-4, opt-level 0" in told(explained(bert([1e-4]), [], tried))
    assert "no workaround was tried" in told(explained(bert([1e-4]), []))


def test_unfinished_stands_near_the_top() -> None:
    unfinished = "max_builds=2 was spent while looking at the proof"
    found = told(replace(bert([1e-4]), unfinished=unfinished))
    assert found[2] == f"Incomplete: {unfinished}."


def measured(original: Report) -> Report:
    """With deviations inside the whole model: what comes after the culprit passes its deviation on."""
    effects = {Verdict.FORMULA: "introduces", Verdict.FAITHFUL: "inherits"}
    tree = tuple(replace(entry, cumulative64=2e-4, effect=effects[entry.verdict]) for entry in original.tree)  # type: ignore[arg-type]
    return replace(original, tree=tree)


def test_deviation_inside_the_whole_model() -> None:
    rows = [" ".join(line.split()) for line in told(measured(bert([1e-4])))]
    assert "component float32 float64 excess64 in model verdict" in rows
    assert "norm LayerNorm 1.0e-07 2.0e-16 1.1 2.0e-04 FAITHFUL inherits" in rows
    assert "aten.gelu.default 1.0e-04 1.0e-04 1.0e+12 2.0e-04 FORMULA <--" in rows


def test_a_narrow_page_shows_it_in_place_of_the_excess() -> None:
    rows = [" ".join(line.split()) for line in told(measured(bert([1e-4])), width=80)]
    assert "component float32 float64 in model verdict" in rows
    assert "norm LayerNorm 1.0e-07 2.0e-16 2.0e-04 FAITHFUL inherits" in rows


def joint(names: list[str]) -> Report:
    """A run of operators, in a module of its own."""
    inside = [operator(f"aten.{name}") for name in names]
    made = report(Node("", Verdict.FORMULA, CLEAN, [Node("block.ffn", Verdict.FORMULA, CLEAN, inside)]))
    holder, parts = made.tree[1], made.tree[2:]
    run = replace(
        parts[0],
        id=" + ".join(part.id for part in parts),
        parent=holder.id,
        kind="run",
        operator=" + ".join(f"aten.{name}" for name in names),
        verdict=Verdict.INTERACTION,
        parts=tuple(part.id for part in parts),
        worst=Element(0, (3, 7), -0.01075773, -0.01122709, "float64"),
    )
    return replace(made, tree=(*made.tree[:2], run, *parts), culprit_ids=(run.id,), verdict=Verdict.INTERACTION)


def test_a_run_of_operators_in_tree_and_table() -> None:
    found = told(joint(["add.Tensor", "gelu.default"]))
    (row,) = [line for line in found if "<--" in line]
    assert " ".join(row.split()) == "aten.add.Tensor + aten.gelu.default 1.0e-07 2.0e-16 1.1 INTERACTION <--"
    (row,) = [line for line in found if line.startswith("block.ffn")]
    assert " ".join(row.split()) == "block.ffn aten.add.Tensor + aten.gelu.default [3, 7] -0.01075773 -0.01122709"


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["add.Tensor", "native_layer_norm.default"], "add.Tensor + native_layer_norm.default"),
        (["add.Tensor", "scaled_dot_product_attention.default"], "add + scaled_dot_product_attention"),
        ([*["add.Tensor"] * 9, "gelu.default"], "add + ... + gelu (10 operators)"),
    ],
)
def test_the_name_of_a_long_run_is_shortened_so_that_its_ends_can_be_read(names: list[str], shown: str) -> None:
    (row,) = [line for line in told(joint(names)) if "<--" in line]
    assert row.strip().startswith(f"{shown}  ")


def with_samples(entry: Entry, *samples: int) -> Entry:
    return replace(entry, sample=samples[0], samples=samples)


def test_samples_on_which_a_culprit_shows() -> None:
    original = bert([1e-5, 1e-4, 1e-5])
    wrong = dict(zip(original.culprit_ids, ((2,), (0, 1, 2), (0, 2)), strict=True))
    tree = tuple(with_samples(entry, *wrong[entry.id]) if entry.id in wrong else entry for entry in original.tree)
    several = replace(original, tree=tree, environment={"samples": "3"})
    rows = [line.split("  ") for line in section(told(several), "3 culprits")]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert [row[2] for row in cells[:4]] == ["on sample", "2", "all", "0, 2"]
    assert "on sample" not in "".join(section(told(replace(several, environment={})), "3 culprits"))


def test_builds_that_proved_are_counted_apart() -> None:
    assert "3 TVM builds to find, 2 to prove and explain, 1.0 s (build 1.0)" in told(
        replace(bert([1e-4]), cost=Cost(3, {"build": 1.0}, 2))
    )

import io
import sys
from dataclasses import replace

import pytest
from rich.cells import cell_len

from bisect_tvm.numerics.verdict import Element, Verdict
from bisect_tvm.report.report import Cost, Report
from bisect_tvm.report.text import HEIGHT, render_text
from tests.report.synthetic import CLEAN, Node, bert, culprit, layer, operator, report

UNRESOLVED = Verdict.UNRESOLVED
NOTHING = (None, None, None)


def lines(rendered: str) -> list[str]:
    """The lines, after a check that holds for every report."""
    found = rendered.split("\n")
    assert len(found) <= HEIGHT
    assert all(cell_len(line) <= 100 for line in found)
    assert all(line == line.rstrip() for line in found)
    return found


def test_one_culprit_is_marked_beside_its_clean_siblings() -> None:
    found = lines(str(bert([None, None, 1e-4, None])))
    assert found[:2] == [
        "One operator is computed by another formula.",
        "FORMULA; deviation of the whole model: float32 1.0e-03, float64 1.0e-03.",
    ]
    assert [" ".join(line.split()) for line in found[3:15]] == [
        "component float32 float64 excess64 verdict",
        "Bert 1.0e-03 1.0e-03 1.0e+12 FORMULA",
        "embeddings Embeddings 1.0e-07 2.0e-16 1.1 FAITHFUL",
        "encoder Encoder 1.0e-03 1.0e-03 1.0e+12 FORMULA",
        "layer.0 Layer x3 (layer.0, 1, 3) 1.0e-07 2.0e-16 1.1 FAITHFUL",
        "layer.2 Layer 1.0e-04 1.0e-04 1.0e+11 FORMULA",
        "attention Attention 1.0e-07 2.0e-16 1.1 FAITHFUL",
        "intermediate Intermediate 1.0e-04 1.0e-04 1.0e+11 FORMULA",
        "dense Linear 1.0e-07 2.0e-16 1.1 FAITHFUL",
        "act GELU 1.0e-04 1.0e-04 1.0e+11 FORMULA",
        "aten.gelu.default 1.0e-04 1.0e-04 1.0e+12 FORMULA <--",
        "norm LayerNorm 1.0e-07 2.0e-16 1.1 FAITHFUL",
    ]
    assert "encoder.layer.2.intermediate.act" in found[17]
    assert "[1, 2, 37]  -0.1592174  -0.158808" in found[17]
    assert found[18] == "  source: /home/me/model.py:12"
    assert found[-2:] == ["3 TVM builds, 3.8 s (export 1.2, build 2.5)", found[-1]]
    assert found[-1] == "torch 2.13.0, apache-tvm 0.27.0.post1, target llvm"


def test_layers_that_look_alike_are_shown_once_for_the_worst() -> None:
    found = lines(str(bert([1e-5, 2e-5, 9e-5, 3e-5, 2e-5, 1e-5])))
    (row,) = [line for line in found if "layer." in line and "Layer x6" in line]
    assert row.split()[:4] == ["layer.2", "Layer", "x6", "(layer.0..5)"]
    assert "9.0e-05" in row
    assert sum("<--" in line for line in found) == 1
    # Every culprit is still named in full.
    assert sum(line.startswith("encoder.layer.") for line in found) == 6


def test_faithful_report_shows_the_way_to_what_came_nearest_to_a_fault() -> None:
    noisy = operator("aten.mean.dim", numbers=(1e-5, 1e-14, 12.0))
    blocks = (Node("first", children=(operator("aten.relu.default"),)), Node("second", children=(noisy,)))
    found = lines(str(report(Node("", children=blocks), summary="TVM agrees.")))
    assert found[0] == "TVM agrees."
    assert any("aten.mean.dim" in line and "12" in line for line in found)
    assert "<--" not in "".join(found)


def test_a_report_of_thousands_of_different_components_fits_the_screen() -> None:
    def block(number: int) -> Node:
        wrong = number % 3 == 0
        verdict = Verdict.FORMULA if wrong else Verdict.FAITHFUL
        names = [f"aten.op{number}_{position}.default" for position in range(20)]
        inner = [operator(name, source=f"/home/me/{'deep/' * 30}model.py:{number}") for name in names]
        if wrong:
            inner[number % 20] = culprit(names[number % 20], 1e-6 * number + 1e-7)
        if number % 5 == 1:
            inner[3] = operator(names[3], verdict=UNRESOLVED, numbers=NOTHING, reason=f"TVM said {number} " * 30)
        return Node(f"a_long_module_name_{'x' * 60}_{number}", verdict, CLEAN, inner, f"my.models.Block{number}")

    big = report(Node("", Verdict.FORMULA, CLEAN, [block(number) for number in range(100)]), summary="Word " * 200)
    assert sum(entry.kind == "operator" for entry in big.tree) == 2000
    found = lines(str(big))
    text = "\n".join(found)
    assert "more (see the JSON)" in text
    assert "34 culprits" in text
    assert "20 unresolved" in text
    assert "<--" in text


def test_a_tree_deeper_than_the_screen_is_cut() -> None:
    node = culprit("aten.gelu.default")
    for _ in range(300):
        node = Node("inner", Verdict.FORMULA, CLEAN, (node,))
    found = lines(str(report(node)))
    assert any("more (see the JSON)" in line for line in found)
    assert any("aten.gelu.default" in line for line in found)


def test_agreeing_siblings_are_folded_with_their_largest_deviations() -> None:
    children = [operator(f"aten.op{number}.default", numbers=(1e-7, number * 1e-16, 2.0)) for number in range(9)]
    children[4] = culprit("aten.gelu.default")
    found = lines(str(report(Node("", Verdict.FORMULA, CLEAN, children))))
    rows = [line.split() for line in found]
    assert ["...", "6", "more", "1.0e-07", "8.0e-16", "2", "FAITHFUL"] in rows
    # The nearest ones stand beside the culprit.
    assert [row[0] for row in rows[5:8]] == ["aten.op3.default", "aten.gelu.default", "aten.op5.default"]


def test_unresolved_components_are_grouped_by_reason() -> None:
    cumsum = operator("aten.cumsum.default", verdict=UNRESOLVED, numbers=NOTHING, reason="TVM cannot\nsum booleans")
    rows = [Node(f"h.{number}", children=(cumsum,)) for number in range(12)]
    found = lines(str(report(Node("", UNRESOLVED, NOTHING, rows), summary="Not all could be judged.")))
    start = found.index("12 unresolved")
    assert found[start + 1] == "aten.cumsum.default x12 at h.0, ...: TVM cannot sum booleans"
    assert " ".join(found[4].split()) == "Block - - - UNRESOLVED"


@pytest.mark.parametrize("name", ["layer[bold]", "[/]", "a[link=http://x]b", "\x1b[31mred", "naïve.層"])
def test_names_from_the_model_are_shown_as_they_are(name: str) -> None:
    node = Node(name, Verdict.FORMULA, children=(culprit("aten.gelu.default"),), module_class="m.Odd[int]")
    plain = str(report(Node("", Verdict.FORMULA, children=(node,)), summary="See [red]this[/red]."))
    lines(plain)
    assert name.replace("\x1b", "?") in plain
    assert "\x1b" not in plain
    assert "Odd[int]" in plain
    assert plain.startswith("See [red]this[/red].")


def test_numbers_that_are_missing_zero_or_not_finite() -> None:
    nodes = [
        operator("aten.a.default", numbers=(0.0, 0.0, 0.0)),
        operator("aten.b.default", numbers=(None, None, None)),
        Node("aten.c.default", Verdict.NONFINITE, (float("nan"), float("inf"), float("inf")), culprit=True),
    ]
    found = [" ".join(line.split()) for line in lines(str(report(Node("", Verdict.NONFINITE, NOTHING, nodes))))]
    assert "aten.a.default 0 0 0 FAITHFUL" in found
    assert "aten.b.default - - - FAITHFUL" in found
    assert "aten.c.default nan inf inf NONFINITE <--" in found


def test_worst_element_shows_the_digits_that_differ() -> None:
    original = bert([1e-4])
    close = Element(1, (), 1.0, 1.0 + 2**-52, "float64")
    tree = tuple(replace(entry, worst=close) if entry.id in original.culprit_ids else entry for entry in original.tree)
    text = str(replace(original, tree=tree))
    assert "1: [] 1 1.0000000000000002" in " ".join(text.split())


def test_culprits_from_several_lines_of_source() -> None:
    nodes = [replace(culprit(f"aten.op{number}.default"), source=f"model.py:{number % 2}") for number in range(3)]
    text = str(report(Node("", Verdict.FORMULA, CLEAN, [Node("a", Verdict.FORMULA, CLEAN, nodes)])))
    assert "  a (and 1 more): model.py:0\n  a: model.py:1\n" in text


def test_colours_only_when_asked() -> None:
    text = render_text(bert([1e-4]), colour=True)
    assert "\x1b[1;31m" in text
    assert len(text.split("\n")) <= HEIGHT


def test_the_cost_is_wrapped_between_words() -> None:
    steps = ("capture", "hierarchy", "reference", "import", "build", "lower", "run", "compare", "cut", "check kernels")
    costly = replace(bert([1e-4]), cost=Cost(3, dict.fromkeys(steps, 12.3)))
    found = render_text(costly, width=80).split("\n")
    start = next(number for number, line in enumerate(found) if line.startswith("3 TVM builds"))
    shown = f"3 TVM builds, 123.0 s ({', '.join(f'{step} 12.3' for step in steps)})"
    assert " ".join(found[start:]).startswith(f"{shown} torch ")
    assert all(cell_len(line) <= 80 for line in found)
    assert len(found) <= HEIGHT


def test_text_does_not_depend_on_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = str(bert([1e-4]))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert str(bert([1e-4])) == expected


def test_the_model_alone() -> None:
    alone: Report = report(replace(layer("", None), children=()), summary="TVM agrees.")
    assert len(lines(str(alone))) == 8

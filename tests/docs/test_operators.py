"""The generated table of operators, against the TVM that is installed."""

from pathlib import Path

import pytest
import torch

from docs.operator_judging import judge_samples
from docs.operator_samples import Sample
from docs.operators import TABLE, converter_keys

X = torch.tensor([[0.1, -1.3, 2.7], [-0.4, 3.3, -2.9]])
SAMPLES = {
    "tan.default": Sample("tan.default", "aten.tan.default", (X,), {}, None, "test"),
    "celu.default": Sample("celu.default", "aten.celu.default", (X, 0.7), {}, None, "test"),
    "mul_.Tensor": Sample("mul_.Tensor", "aten.mul_.Tensor", (X, 0.1), {}, None, "test"),
}


def rows() -> dict[str, list[str]]:
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {each[0].strip("`"): each for each in cells}


def test_every_operator_that_tvm_converts_has_a_row() -> None:
    assert rows().keys() == converter_keys()


def test_the_rows_are_sorted() -> None:
    assert list(rows()) == sorted(rows())


@pytest.fixture(scope="module")
def judged() -> dict[str, str]:
    found = judge_samples(list(SAMPLES.values()))
    return {result.key: str(result.judgement and result.judgement.verdict) for result in found}


@pytest.mark.parametrize("key", SAMPLES)
def test_the_table_says_what_is_found(key: str, judged: dict[str, str]) -> None:
    assert rows()[key][7].split()[0] == judged[key]


def test_the_table_says_how_it_was_made() -> None:
    text = Path(TABLE).read_text()
    assert "python -m docs.operators" in text
    assert "Do not edit" in text

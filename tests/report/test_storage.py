import json
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from bisect_tvm.errors import InputError, ReportError
from bisect_tvm.report.report import Report
from tests.report.arbitrary import reports
from tests.report.synthetic import bert


def comparable(value: Any) -> Any:
    """`value` with types made visible and NaN equal to itself."""
    if is_dataclass(value):
        return {field.name: comparable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return type(value), value


@given(report=reports())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_report_comes_back_as_it_was(report: Report, tmp_path: Path) -> None:
    path = report.save(tmp_path / "report.json")
    assert comparable(Report.load(path)) == comparable(report)
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_report_without_nan_is_equal_to_its_copy(tmp_path: Path) -> None:
    report = bert([None, 1e-4])
    path = report.save(str(tmp_path / "report.json"))
    assert Report.load(str(path)) == report
    assert str(Report.load(path)) == str(report)


def test_file_says_what_it_is(tmp_path: Path) -> None:
    content = json.loads(bert([1e-4]).save(tmp_path / "r.json").read_text())
    assert list(content)[:3] == ["format", "version", "verdict"]
    assert (content["format"], content["version"], content["verdict"]) == ("bisect_tvm.report", 2, "FORMULA")


def test_saving_replaces_the_older_report(tmp_path: Path) -> None:
    path = bert([1e-4]).save(tmp_path / "r.json")
    bert([None]).save(path)
    assert Report.load(path) == bert([None])


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    content = json.loads(json.dumps(saved_content()))
    change(content)
    return json.dumps(content)


def saved_content() -> dict[str, Any]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        content: dict[str, Any] = json.loads(bert([1e-4]).save(Path(folder, "r.json")).read_text())
    return content


def set_entry(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["tree"][2].update(values)


DAMAGED = {
    "empty": ("", "is not JSON"),
    "words": ("once upon a time", "is not JSON"),
    "truncated": (json.dumps(saved_content())[:5000], "truncated"),
    "list": ("[]", "not a report"),
    "number": ("1", "not a report"),
    "other": ('{"format": "other", "version": 1}', "not a report"),
    "nan literal": (edited(set_entry(deviation64=math.nan)), "strict JSON has no NaN"),
    "nested": ("[" * 100_000, "is not a report"),
    "newer": (edited(lambda content: content.update(version=3)), "newer bisect_tvm"),
    "version": (edited(lambda content: content.update(version="1")), "its version is '1'"),
    "true version": (edited(lambda content: content.update(version=True)), "its version is True"),
    "no version": (edited(lambda content: content.pop("version")), "its version is None"),
    "no summary": (edited(lambda content: content.pop("summary")), "no field 'summary'"),
    "no path": (edited(lambda content: content["tree"][2].pop("path")), r"no field 'path' in tree\[2\]"),
    "extra": (edited(set_entry(colour="red")), r"unknown field 'colour' in tree\[2\]"),
    "text for number": (edited(set_entry(deviation64="1.0")), r"'1.0' is not a number in tree\[2\].deviation64"),
    "bool for number": (edited(set_entry(excess32=True)), r"True is not a number in tree\[2\].excess32"),
    "number for text": (edited(set_entry(path=3)), r"3 is not a string in tree\[2\].path"),
    "float for int": (edited(set_entry(depth=1.0)), r"1.0 is not an integer in tree\[2\].depth"),
    "verdict": (edited(set_entry(verdict="MAYBE")), r"'MAYBE' .* in tree\[2\].verdict"),
    "kind": (edited(set_entry(kind="thing")), r"tree\[2\].kind"),
    "text for list": (edited(set_entry(stated="FAITHFUL")), r"'FAITHFUL' is not a list in tree\[2\].stated"),
    "text for object": (edited(set_entry(worst="none")), r"'none' is not a JSON object in tree\[2\].worst"),
    "list for dict": (edited(lambda content: content.update(environment=[])), "not a JSON object in environment"),
    "seconds": (edited(lambda content: content["cost"]["seconds"].update(export="1")), r"cost.seconds\['export'\]"),
    "no tree": (edited(lambda content: content.update(tree=[])), "its tree is empty"),
    "twice": (edited(lambda content: content["tree"].append(content["tree"][2])), "two components"),
    "orphan": (edited(set_entry(parent="nowhere")), "does not follow its parent"),
    "two roots": (edited(set_entry(parent=None)), "does not follow its parent"),
    "explained": (edited(lambda content: content.update(explanations=[{}])), r"no field 'culprit_ids' in explanations\[0\]"),
    "culprit": (edited(lambda content: content["culprit_ids"].append("x")), "culprit 'x' is not in its tree"),
}


@pytest.mark.parametrize(("content", "complaint"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_explained_in_one_sentence(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(ReportError, match=complaint) as caught:
        Report.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="There is no report at"):
        Report.load(tmp_path / "missing.json")
    with pytest.raises(ReportError, match="cannot be read: Is a directory"):
        Report.load(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x80\x04\x95")
    with pytest.raises(ReportError, match="not text in UTF-8"):
        Report.load(binary)


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "r.json", tmp_path):
        with pytest.raises(InputError, match="cannot be written to"):
            bert([1e-4]).save(path)
    assert list(tmp_path.iterdir()) == []


def test_failed_save_keeps_the_older_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bert([None]).save(tmp_path / "r.json")

    def fail(source: Path, destination: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(InputError, match="No space left on device"):
        bert([1e-4]).save(path)
    assert Report.load(path) == bert([None])
    assert [file.name for file in tmp_path.iterdir()] == ["r.json"]


def test_values_that_json_cannot_hold_are_not_written(tmp_path: Path) -> None:
    report = replace(bert([None]), environment={"torch": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        report.save(tmp_path / "r.json")
    assert list(tmp_path.iterdir()) == []

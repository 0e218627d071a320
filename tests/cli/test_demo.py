from bisect_tvm.demo import LAYERS, run_demo, tell_second


def test_demo_finds_what_was_staged_and_what_was_not() -> None:
    told: list[str] = []
    first, second = run_demo(told.append)
    assert [(entry.path, entry.operator) for entry in first.culprits] == [
        (f"encoder.layer.{number}.intermediate.act", "aten.gelu.default") for number in range(LAYERS)
    ]
    if second.verdict.is_divergence:
        assert [(entry.path, entry.operator) for entry in second.culprits] == [("act", "aten.elu.default")]
        assert "aten.elu.default in act differently" in tell_second(second)
    else:
        assert second.culprits == ()
        assert "No part was found" in tell_second(second)
    text = "\n".join(told)
    assert str(first) in text
    assert str(second) in text
    for word in ("float32", "float64", "operator", "submodule", "model", "encoder.layer.0.intermediate.act"):
        assert word in told[1]

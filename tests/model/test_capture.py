from collections import UserDict, namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from bisect_tvm.errors import CaptureError, InputError
from bisect_tvm.model.capture import capture
from tests.model.helpers import assert_equal, captured, results_of, tensors_in


class Sum(nn.Module):
    """Adds and scales whatever tensors it is given, by position or by name."""

    def forward(self, first: torch.Tensor, second: torch.Tensor, *, scale: torch.Tensor | None = None) -> torch.Tensor:
        total = 2 * first - second
        return total if scale is None else total * scale


A, B, C = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]), torch.tensor(7.0)
DIFFERENCE = 2 * A - B


# ---------------------------------------------------------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    ("inputs", "kwargs", "expected"),
    [
        ((A, B), None, DIFFERENCE),
        ((A,), {"second": B}, DIFFERENCE),
        ((A, B), {"scale": C}, DIFFERENCE * C),
        ((A, B), {"scale": None}, DIFFERENCE),
        ({"first": A, "second": B}, None, DIFFERENCE),
        ({"second": B, "first": A}, None, DIFFERENCE),
        ({"first": A}, {"second": B, "scale": C}, DIFFERENCE * C),
        (UserDict(second=B, first=A), None, DIFFERENCE),  # as Hugging Face's BatchEncoding is
    ],
    ids=["tuple", "tuple and keyword", "keyword only", "None", "dict", "dict in another order", "dict and keywords", "mapping"],
)
def test_ways_to_give_inputs(inputs: Any, kwargs: Any, expected: torch.Tensor) -> None:
    program = captured(Sum(), inputs, kwargs)
    assert_equal(results_of(program), [expected])
    assert all(name in program.bindings for name in program.inputs)


def test_a_tensor_is_the_only_argument() -> None:
    model = nn.Linear(2, 3)
    program = captured(model, A)
    assert len(program.inputs) == 1
    assert_equal(results_of(program), [model(A).detach()])


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class Nested(nn.Module):
    def forward(self, parts: Any) -> dict[str, Any]:
        (first, [second, third]), named, point = parts["pair"], parts["named"], parts["point"]
        return {"list": [first + second, (third, None)], "point": Point(point.y, point.x), "named": {"a": named["k"] * 2}}


def test_nested_containers_in_and_out() -> None:
    parts = {"pair": (A, [B, C]), "named": {"k": A + 1}, "point": Point(A, B)}
    program = captured(Nested(), (parts,))
    assert len(program.inputs) == 6
    assert_equal(results_of(program), tensors_in(Nested()(parts)))


@dataclass
class Batch:
    words: torch.Tensor
    masks: list[torch.Tensor]
    scale: float
    extra: "Batch | None" = None


@dataclass(frozen=True)
class Answer:
    scores: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    name: str = "answer"
    nothing: torch.Tensor | None = None
    more: dict[str, torch.Tensor] = field(default_factory=dict)


class FromBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(2, 2)

    def forward(self, batch: Batch) -> Answer:
        hidden = self.dense(batch.words) * batch.scale + batch.masks[0] - batch.masks[1]
        if batch.extra is not None:
            hidden = hidden + batch.extra.words
        return Answer(hidden.sum(-1), (hidden, batch.words), more={"b": hidden * 2, "a": hidden * 3})


def test_dataclasses_that_nobody_registered() -> None:
    torch.manual_seed(0)
    model = FromBatch().eval()
    batch = Batch(A, [B, A], 0.5, Batch(B, [], 1.0))
    answer = model(batch)
    registered = len(torch.utils._pytree.SUPPORTED_NODES)
    program = captured(model, (batch,))
    assert len(program.inputs) == 4
    assert_equal(results_of(program), [t.detach() for t in (answer.scores, *answer.hidden, answer.more["b"], answer.more["a"])])
    assert batch.words is A  # left as it was
    assert batch.masks[0] is B
    assert len(torch.utils._pytree.SUPPORTED_NODES) == registered  # torch knows no more classes than before


def test_a_dataclass_out_only() -> None:
    class Out(nn.Module):
        def forward(self, x: torch.Tensor) -> Answer:
            return Answer(x + 1, (x * 2,))

    assert_equal(results_of(captured(Out(), A)), [A + 1, A * 2])


def test_paths_are_those_of_the_users_model_also_where_it_is_wrapped() -> None:
    from bisect_tvm.model.hierarchy import component_tree

    tree = component_tree(captured(FromBatch(), (Batch(A, [B, A], 0.5),)))
    assert "dense" in {component.path for component in tree.walk()}
    assert tree.module_class.endswith("FromBatch")
    assert not any("adapter" in c.path.lower() or c.path.startswith("model") for c in tree.walk())


class Flags(nn.Module):
    def forward(self, x: torch.Tensor, double: bool, power: int, text: str, nothing: None, *, half: float = 1.0) -> torch.Tensor:
        assert nothing is None
        x = (2 * x if double else x) ** power * half
        return -x if text == "negative" else x


def test_flags_numbers_strings_and_none() -> None:
    for double, text in [(True, "negative"), (False, "")]:
        inputs = (A, double, 3, text, None)
        program = captured(Flags(), inputs, {"half": 0.5})
        assert len(program.inputs) == 1
        assert_equal(results_of(program), [Flags()(*inputs, half=0.5)])


def test_an_object_that_torch_cannot_look_into_is_named_and_left_out() -> None:
    class Cache:
        def __init__(self, kept: torch.Tensor) -> None:
            self.kept = kept

    class Caching(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Cache]:
            return x + 1, Cache(x)

    program = captured(Caching(), A)
    assert_equal(results_of(program), [A + 1])
    assert any("Cache" in name for name in program.ignored)


def test_buffers_constants_and_tied_parameters_are_bound() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
            self.second.weight = self.first.weight
            self.register_buffer("kept", torch.ones(2))
            self.register_buffer("fleeting", torch.full((2,), 3.0), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x)) + self.kept + self.fleeting + torch.tensor([1.0, 2.0])

    torch.manual_seed(0)
    model = Tied()
    assert_equal(results_of(captured(model, A)), [model(A).detach()])


@pytest.mark.parametrize("decompose", [True, False])
def test_an_exported_program(decompose: bool) -> None:
    program = torch.export.export(Sum(), (A, B), {"scale": C})
    assert_equal(results_of(captured(program, (A, B), {"scale": C}, decompose=decompose)), [DIFFERENCE * C])
    assert_equal(results_of(captured(program, (B, A), {"scale": C}, decompose=decompose)), [(2 * B - A) * C])


def test_an_exported_program_with_sizes_of_its_own() -> None:
    size = torch.export.Dim("size", min=2, max=100)
    program = torch.export.export(nn.Linear(2, 3).eval(), (torch.randn(4, 2),), dynamic_shapes=({0: size},))
    assert results_of(captured(program, torch.randn(9, 2)))[0].shape == (9, 3)


def test_operators_are_decomposed_unless_the_user_says_otherwise() -> None:
    def operators(decompose: bool) -> set[str]:
        program = captured(nn.Sequential(nn.Linear(2, 2), nn.SELU()), A.reshape(1, 2), decompose=decompose)
        return {str(node.target) for node in program.nodes.values() if node.op == "call_function"}

    assert {"aten.linear.default", "aten.selu.default"} <= operators(False)
    assert {"aten.addmm.default", "aten.elu.default"} <= operators(True)


# ---------------------------------------------------------------------------------------------------------------- bad input


def refusal(model: Any, inputs: Any, kwargs: Any = None, error: type[Exception] = InputError) -> str:
    with pytest.raises(error) as caught:
        capture(model, inputs, kwargs, decompose=True)
    text = str(caught.value)
    assert "\n" not in text, "one sentence or two, on one line"
    return text


@pytest.mark.parametrize(("model", "word"), [("linear", "str"), (None, "NoneType"), (lambda x: x, "function"), ([], "list")])
def test_not_a_module(model: object, word: str) -> None:
    text = refusal(model, A)
    assert "torch.nn.Module" in text
    assert word in text


def test_a_class_in_place_of_a_module() -> None:
    assert "Linear; pass an instance" in refusal(nn.Linear, A)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module() -> None:
    assert "scripted" in refusal(torch.jit.trace(nn.Linear(2, 2).eval(), A), A)


def test_a_list_holds_samples() -> None:
    program = capture(Sum().eval(), [(A, B), (B, A)], None, decompose=True)
    assert [
        [torch.equal(value, given) for value, given in zip(sample.values(), pair, strict=True)]
        for sample, pair in zip(program.samples, [(A, B), (B, A)], strict=True)
    ] == [[True, True], [True, True]]
    assert all(torch.equal(program.bindings[name], value) for name, value in program.samples[0].items())


def test_lists_that_hold_no_samples() -> None:
    assert "empty list" in refusal(Sum().eval(), [])
    assert "samples" in refusal(Sum().eval(), [[A, B]])
    assert refusal(Sum().eval(), [(A, B), (A, B[:1])]).startswith("Sample 1 of 2 in `inputs`")
    assert refusal(Sum().eval(), [(A, B), A]).startswith("Sample 1 of 2 in `inputs`")


def test_an_argument_given_twice() -> None:
    text = refusal(Sum().eval(), {"first": A, "second": B}, {"second": B})
    assert "'second'" in text
    assert "twice" in text or "both" in text


def test_keys_that_are_no_names() -> None:
    assert "1 is of type int" in refusal(Sum().eval(), {1: A})


@pytest.mark.parametrize(
    ("inputs", "word"),
    [(torch.randn(4, 5), "mat1 and mat2"), ((A, B), "positional argument"), ({"y": A}, "y"), (None, "NoneType"), ((), "argument")],
)
def test_inputs_that_the_model_rejects(inputs: Any, word: str) -> None:
    text = refusal(nn.Linear(2, 2).eval(), inputs)
    assert text.startswith("The model rejects the inputs: ")
    assert word in text


def test_inputs_that_the_users_own_code_rejects_name_the_line() -> None:
    class Picky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] != 3:
                raise ValueError("I want three")  # here
            return x

    text = refusal(Picky().eval(), A)
    assert "ValueError: I want three" in text
    assert f"{__file__}:{_line_of('# here')}" in text


def _line_of(mark: str) -> int:
    with open(__file__) as lines:
        return next(number for number, line in enumerate(lines, 1) if line.rstrip().endswith(mark))


def test_a_model_that_export_rejects() -> None:
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 0:  # the branch
                return x + 1
            return x - 1

    text = refusal(Branching().eval(), A, error=CaptureError)
    assert "torch.export cannot capture the model" in text
    assert f"{__file__}:{_line_of('# the branch')}" in text
    assert "data-dependent" in text.lower() or "data dependent" in text.lower()


def reading_training() -> nn.Module:
    class Reads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if self.training else x

    return Reads()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.25)), "Dropout drops elements at random (p=0.25)"),
        (lambda: nn.Sequential(*[nn.Dropout(0.5) for _ in range(3)]), "(3 modules)"),
        (lambda: nn.BatchNorm1d(2), "BatchNorm1d uses the statistics of the batch"),
        (lambda: nn.Sequential(nn.Sequential(nn.InstanceNorm1d(3, track_running_stats=True))), "InstanceNorm1d"),
        (lambda: nn.RReLU(), "RReLU draws random slopes"),
        (lambda: nn.LSTM(2, 2, num_layers=2, dropout=0.1), "LSTM drops elements at random (dropout=0.1)"),
        (reading_training, "Reads.forward reads self.training"),
    ],
)
def test_a_model_in_training_mode(make: Any, word: str) -> None:
    model = make().train()
    text = refusal(model, torch.randn(3, 2))
    assert "training mode" in text
    assert word in text
    assert "model.eval()" in text
    assert model.training


@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 2), lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))])
def test_training_mode_that_changes_nothing_is_accepted(make: Any) -> None:
    model = make().train()
    capture(model, A, None, decompose=True)
    assert model.training


PROGRAM_INPUTS = (torch.randn(3, 2),)


@pytest.mark.parametrize(
    ("inputs", "kwargs", "word"),
    [
        ((torch.randn(4, 2),), None, "shape (4, 2)"),
        ((torch.randn(3, 2).double(),), None, "torch.float64"),
        ((torch.randn(3, 2), A), None, "2 were given"),
        ((), None, "0 were given"),
        (PROGRAM_INPUTS, {"scale": C}, "'scale'"),
        ((3,), None, "int"),
        ({"input": A}, None, "'input'"),
    ],
)
def test_inputs_that_an_exported_program_was_not_made_for(inputs: Any, kwargs: Any, word: str) -> None:
    program = torch.export.export(nn.Linear(2, 2).eval(), PROGRAM_INPUTS)
    text = refusal(program, inputs, kwargs)
    assert "xported" in text
    assert word in text


def test_a_value_that_is_read_after_it_was_changed_in_place() -> None:
    class Changes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            z = y.view(2, 1)
            y.add_(1)
            return z * 3

    with pytest.raises(CaptureError, match="decompose=True"):
        captured(Changes(), A, decompose=False)
    assert_equal(results_of(captured(Changes(), A)), [Changes()(A)])


def test_an_in_place_operator_whose_result_alone_is_read() -> None:
    program = captured(nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True)), A.reshape(1, 2), decompose=False)
    assert any("relu_" in str(node.target) for node in program.nodes.values())


pair = namedtuple("pair", "first second")


def test_a_named_tuple_is_one_argument() -> None:
    class Takes(nn.Module):
        def forward(self, both: Any) -> torch.Tensor:
            return both.first - both.second

    assert_equal(results_of(captured(Takes(), pair(A, B))), [A - B])

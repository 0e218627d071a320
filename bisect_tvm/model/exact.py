"""Operators that move, select or compare numbers without rounding any.

Their results are some of their inputs, to the last bit, or whole numbers. Rounding explains no deviation there, so the noise
floor must not be raised by perturbing them: one bit that differs counts, and an index that was computed as a float must not
be moved by one.
"""

import operator

import torch
from torch import fx

_COPIES = """
alias alias_copy as_strided broadcast_in_dim broadcast_to cat chunk clone contiguous copy copy_ copy_to constant_pad_nd
convert_element_type detach diagonal dropout embedding expand expand_as expand_copy fill fill_ flatten flip full full_like gather
getitem index index_put index_select item lift_fresh lift_fresh_copy masked_fill masked_select movedim narrow
native_dropout new_full new_ones new_zeros ones ones_like pad permute pixel_shuffle pixel_unshuffle reflection_pad1d
reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape
resize roll rot90 scalar_tensor scatter select select_scatter slice slice_in_dim slice_scatter split split_dim
split_with_sizes squeeze stack swapaxes t take tile transpose tril triu unbind unfold unsqueeze unsqueeze_ view
view_as view_of where zeros zeros_like _to_copy _unsafe_view _unsafe_index channel_shuffle concatenate collapse_view
""".split()
_SELECTIONS = """
abs neg relu relu_ clamp clamp_min clamp_max hardtanh relu6 maximum minimum max min amax amin aminmax fmax fmin
max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d
sort argsort msort topk median kthvalue mode cummax cummin threshold copysign
""".split()
_JUMPS = """
floor ceil round trunc sign sgn eq ne lt le gt ge argmax argmin isnan isinf isfinite logical_and logical_or
logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor any all nonzero bucketize searchsorted signbit heaviside
""".split()

_EXACT = frozenset(_COPIES + _SELECTIONS + _JUMPS)
_DECIDES = frozenset(_JUMPS)
_STEADY = frozenset(_COPIES + _SELECTIONS)
_CASTS = frozenset({"_to_copy", "to", "convert_element_type"})
_FIRST_OF_EQUALS = frozenset({"max", "min", "aminmax", "argmax", "argmin"})
_ANY_OF_EQUALS = frozenset(
    """
    sort argsort msort topk kthvalue median nanmedian mode cummax cummin
    max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    """.split()
)
_MADE_FOR_TINY_NUMBERS = frozenset({"log1p", "expm1"})
_LOSE_NEAR_ZERO = _MADE_FOR_TINY_NUMBERS | frozenset(
    """
    tanh tanh_ sinh asin asinh atan atan2 atanh erf elu elu_ selu celu softplus mish log_sigmoid log_sigmoid_forward logit logaddexp
    gelu tanhshrink lstm gru rnn_tanh
    """.split()
)
_JUMP_AND_ROUND = frozenset({"floor_divide", "remainder", "fmod", "frac"})


def is_exact(target: object) -> bool:
    """True if the operator, whatever its arguments, only moves, selects or compares (casts included)."""
    return name_of(target) in _EXACT


def rounds_nothing(node: fx.Node) -> bool:
    """True if every correct implementation gives the same bits: one that differs is a fault, whatever its size.

    `index_put` and `scatter` that add, `round` to decimals and casts to a shorter format do round; their arguments tell them apart.
    """
    name = name_of(node.target)
    if name not in _EXACT or (name in _CASTS and _narrows(node)):
        return False
    if name == "round":
        return "decimals" not in str(node.target)
    adds = any(argument is True for argument in node.args[1:]) if "index_put" in str(node.target) else "reduce" in node.kwargs
    return not adds


def is_steady(node: fx.Node) -> bool:
    """True if the operator rounds nothing and does not jump either: a small change going in is a small change coming out."""
    return name_of(node.target) in _STEADY and rounds_nothing(node) and not jumps(node)


def jumps_and_rounds(node: fx.Node) -> bool:
    """True if a small change going in can be a large one coming out, at some places, and the rest is subject to rounding."""
    name = name_of(node.target)
    if "round.decimals" in str(node.target):
        return True
    return name in _JUMP_AND_ROUND or (name == "div" and node.kwargs.get("rounding_mode") is not None)


def jumps(node: fx.Node) -> bool:
    """True if a small change going in can be a large one coming out: a comparison, an index, a cast to whole numbers."""
    name = name_of(node.target)
    places = name in _ANY_OF_EQUALS | _FIRST_OF_EQUALS and _places_are_read(node)
    return places or jumps_and_rounds(node) or name in _DECIDES or (name in _CASTS and _from_float_to_whole(node))


def chooses(node: fx.Node) -> bool:
    """True if the operator says where something stands, and something reads it: among equals it may name any."""
    return name_of(node.target) in _ANY_OF_EQUALS and _places_are_read(node)


def _places_are_read(node: fx.Node) -> bool:
    made = node.meta.get("val")
    if isinstance(made, torch.Tensor):
        return made.dtype is torch.int64
    places = {i for i, value in enumerate(made or ()) if isinstance(value, torch.Tensor) and value.dtype is torch.int64}
    return any(user.target is operator.getitem and user.args[1] in places and user.users for user in node.users)


def loses_near_zero(target: object) -> bool:
    """True for functions whose textbook formula cancels where they vanish, as tanh's (1 - e) / (1 + e) does near zero."""
    return name_of(target) in _LOSE_NEAR_ZERO


def is_made_for_tiny_numbers(target: object) -> bool:
    """True if the operator exists to keep the digits of tiny numbers: torch.log1p's and torch.expm1's documentation says so."""
    return name_of(target) in _MADE_FOR_TINY_NUMBERS


def _from_float_to_whole(node: fx.Node) -> bool:
    given, made = _cast(node)
    return given is not None and made is not None and given.is_floating_point and not made.is_floating_point


def _narrows(node: fx.Node) -> bool:
    """True if the result may have fewer digits than what is cast."""
    given, made = _cast(node)
    if given is None or made is None or not made.is_floating_point:
        return False
    if given.is_floating_point:
        return torch.finfo(made).eps > torch.finfo(given).eps or torch.finfo(made).max < torch.finfo(given).max
    return given is not torch.bool and torch.iinfo(given).bits > 8


def _cast(node: fx.Node) -> tuple[torch.dtype | None, torch.dtype | None]:
    """From which dtype to which."""
    given = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], fx.Node) else None
    made = node.meta.get("val")
    return (
        given.dtype if isinstance(given, torch.Tensor) else None,
        made.dtype if isinstance(made, torch.Tensor) else None,
    )


def name_of(target: object) -> str:
    """``aten.clamp.default`` -> ``clamp``; ``prims.floor.default`` -> ``floor``."""
    if target is operator.getitem:
        return "getitem"
    parts = str(target).split(".")
    return parts[1] if len(parts) > 1 else parts[0]

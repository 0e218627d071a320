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
max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d sort topk
median kthvalue mode cummax cummin threshold copysign
""".split()
_JUMPS = """
floor ceil round trunc sign sgn eq ne lt le gt ge argmax argmin isnan isinf isfinite logical_and logical_or
logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor any all nonzero bucketize searchsorted signbit heaviside
""".split()

_EXACT = frozenset(_COPIES + _SELECTIONS + _JUMPS)
_CASTS = frozenset({"_to_copy", "to", "convert_element_type"})
_STEADY = frozenset(_COPIES + _SELECTIONS)


def is_exact(target: object) -> bool:
    """True if the operator rounds nothing."""
    return _name(target) in _EXACT


def is_steady(node: fx.Node) -> bool:
    """True if the operator rounds nothing and does not jump either: the same bits in give the same bits out in any implementation.

    A cast to an integer or boolean jumps; `index_put` and `scatter` that add do round and are told apart by their arguments.
    """
    if _name(node.target) not in _STEADY or (_name(node.target) in _CASTS and _from_float_to_whole(node)):
        return False
    adds = any(argument is True for argument in node.args[1:]) if "index_put" in str(node.target) else "reduce" in node.kwargs
    return not adds


def _from_float_to_whole(node: fx.Node) -> bool:
    made, given = node.meta.get("val"), node.args[0].meta.get("val") if isinstance(node.args[0], fx.Node) else None
    if not isinstance(made, torch.Tensor) or not isinstance(given, torch.Tensor):
        return False
    return given.is_floating_point() and not made.is_floating_point()


def _name(target: object) -> str:
    """``aten.clamp.default`` -> ``clamp``; ``prims.floor.default`` -> ``floor``."""
    if target is operator.getitem:
        return "getitem"
    parts = str(target).split(".")
    return parts[1] if len(parts) > 1 else parts[0]

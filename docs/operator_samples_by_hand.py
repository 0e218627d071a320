"""Calls that PyTorch's operator database does not reach, or not with arguments that show much.

Each is a function and its tensors. Numbers that binary fractions cannot hold (0.1, 0.3) are there on purpose: TVM's importer rounds
such scalars to the model's precision.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name everyone uses

aten = torch.ops.aten


def _roi_align(
    x: torch.Tensor, rois: torch.Tensor, spatial_scale: float, height: int, width: int, sampling_ratio: int, aligned: bool
) -> torch.Tensor:
    """`roi_align` of torchvision as its documentation and its kernel state it; the package itself is not needed."""
    shift = 0.5 if aligned else 0.0
    found = []
    for batch, *corners in rois.tolist():
        left, top, right, bottom = (corner * spatial_scale - shift for corner in corners)
        wide, high = (right - left, bottom - top) if aligned else (max(right - left, 1.0), max(bottom - top, 1.0))
        rows, columns = (sampling_ratio or -1,) * 2
        if sampling_ratio <= 0:
            rows, columns = math.ceil(high / height), math.ceil(wide / width)
        y = top + (torch.arange(height * rows, dtype=x.dtype) + 0.5) * (high / height / rows)
        x_at = left + (torch.arange(width * columns, dtype=x.dtype) + 0.5) * (wide / width / columns)
        sampled = _bilinear(x[int(batch)], y, x_at)
        found.append(F.avg_pool2d(sampled[None], (rows, columns))[0])
    return torch.stack(found)


def _bilinear(image: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    weights = [_weights(positions, size) for positions, size in zip((y, x), image.shape[1:], strict=True)]
    return torch.einsum("chw,yh,xw->cyx", image, *weights)


def _weights(positions: torch.Tensor, size: int) -> torch.Tensor:
    """How much each pixel weighs at each position; nothing beyond one pixel outside."""
    inside = (positions >= -1) & (positions <= size)
    at = positions.clamp(0, size - 1)
    return (1 - (at[:, None] - torch.arange(size, dtype=positions.dtype)).abs()).clamp(min=0) * inside[:, None]


if not hasattr(torch.ops.torchvision, "roi_align"):
    _library = torch.library.Library("torchvision", "FRAGMENT")
    _library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor"
    )
    _library.impl("roi_align", _roi_align, "CPU")
    _library.impl("roi_align", lambda x, rois, _, h, w, *__: x.new_empty(rois.shape[0], x.shape[1], h, w), "Meta")

_generator = torch.Generator().manual_seed(0)


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=_generator)


def _whole(high: int, *shape: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=_generator)


def _call(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    return function, list(tensors)


X = _normal(4, 6)
POSITIVE = _normal(4, 6).abs() + 0.1
IMAGE = _normal(2, 4, 5, 7)
FLAGS = _normal(4, 6) > 0
COUNTS = _whole(9, 4, 6, low=-9)


def _changed(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """An operator that works in place, on a copy."""
    return lambda x: function(x.clone())


def _activations() -> list[Any]:
    functions = [
        lambda x: F.celu(x, alpha=0.7),
        lambda x: F.elu(x, alpha=0.7),
        F.selu,
        lambda x: F.softplus(x, beta=0.7, threshold=1.5),
        lambda x: F.leaky_relu(x, 0.1),
        lambda x: F.softshrink(x, 0.3),
        lambda x: F.hardtanh(x, -0.3, 0.7),
        lambda x: F.gelu(x, approximate="tanh"),
        F.gelu,
        F.hardswish,
        F.hardsigmoid,
        F.silu,
        F.mish,
        F.softsign,
        F.logsigmoid,
        F.relu6,
        lambda x: torch.clamp(x, -0.1, 0.3),
        lambda x: torch.clamp_min(x, 0.1),
        lambda x: torch.clamp_max(x, 0.1),
        lambda x: torch.round(x, decimals=2),
        lambda x: torch.round(x * 100, decimals=-1),
        lambda x: torch.pow(x.abs() + 0.1, 0.3),
        lambda x: torch.pow(0.3, x),
        lambda x: torch.log_softmax(x, 1),
        lambda x: torch.softmax(x, 0),
        lambda x: F.dropout(x, 0.3, training=False),
        lambda x: torch.expm1(x * 1e-6),
        lambda x: torch.log1p(x.abs() * 1e-6),
        lambda x: torch.tanh(x * 1e-6),
    ]
    inplace = [
        lambda x: F.hardtanh_(x, -0.3, 0.7),
        lambda x: F.leaky_relu_(x, 0.1),
        lambda x: F.relu_(x),
        lambda x: F.relu6(x, inplace=True),
        lambda x: F.silu(x, inplace=True),
        lambda x: F.hardswish(x, inplace=True),
        lambda x: F.dropout(x, 0.3, training=False, inplace=True),
        lambda x: x.detach_(),
        lambda x: x.fill_(0.1),
        lambda x: x.zero_(),
        lambda x: x.mul_(0.1),
        lambda x: x.add_(0.1),
        lambda x: x.masked_fill_(x > 0.3, 0.1),
        lambda x: x.index_put_((torch.tensor([0, 2]),), torch.tensor(0.1)),
        lambda x: x.copy_(x * 0.1),
    ]
    return [_call(f, X) for f in functions] + [_call(_changed(f), X) for f in inplace]


def _arithmetic() -> list[Any]:
    return [
        _call(lambda x: x + 0.1, X),
        _call(lambda x: 0.1 - x, X),
        _call(lambda x: x * 0.1, X),
        _call(lambda x: x / 0.3, X),
        _call(lambda x: torch.add(x, x, alpha=0.3), X),
        _call(lambda x: torch.sub(x, x.abs(), alpha=0.3), X),
        _call(lambda x: aten.add.Scalar(x, 0.1), X),
        _call(lambda x: aten.sub.Scalar(x, 0.1), X),
        _call(lambda x: aten.mul.Scalar(x, 0.1), X),
        _call(lambda x: aten.div.Scalar(x, 0.3), X),
        _call(lambda x: aten.rsub.Scalar(x, 0.1, 0.3), X),
        _call(lambda x, y: aten.rsub.Tensor(x, y, alpha=0.3), X, POSITIVE),
        _call(lambda x: torch.div(x, 0.3, rounding_mode="trunc"), X * 3),
        _call(lambda x: torch.div(x, 0.3, rounding_mode="floor"), X * 3),
        _call(lambda x: torch.floor_divide(x, 0.3), X * 3),
        _call(lambda x: torch.fmod(x, 0.3), X),
        _call(lambda x: torch.remainder(x, 0.3), X),
        _call(lambda x, y: x / y, COUNTS, _whole(9, 4, 6, low=1)),
        _call(lambda x: x + 0.1, COUNTS),
        _call(lambda x: x / 3, COUNTS),
        _call(lambda x: x**2, COUNTS),
        _call(lambda x: x > 0.1, X),
        _call(lambda x: aten.eq.Scalar(x, 0.1), torch.tensor([0.1, 0.2, 0.1, 0.3])),
        _call(lambda x: aten.ne.Scalar(x, 0.1), torch.tensor([0.1, 0.2, 0.1, 0.3])),
        _call(lambda x: aten.bitwise_or_.Scalar(x.clone(), 3), COUNTS),
        _call(lambda x, y: aten.bitwise_or_.Tensor(x.clone(), y), COUNTS, COUNTS + 2),
        _call(lambda x: aten.bitwise_and.Scalar(x, 3), COUNTS),
        _call(lambda x: aten.bitwise_or.Scalar(x, 3), COUNTS),
        _call(lambda x: aten.bitwise_xor.Scalar(x, 3), COUNTS),
        _call(lambda x: aten.__and__.Scalar(x, 3), COUNTS),
        _call(lambda x: aten.__or__.Scalar(x, 3), COUNTS),
        _call(lambda x: aten.__xor__.Scalar(x, 3), COUNTS),
        _call(lambda x, y: aten.__and__.Tensor(x, y), COUNTS, COUNTS + 2),
        _call(lambda x, y: aten.__or__.Tensor(x, y), COUNTS, COUNTS + 2),
        _call(lambda x, y: aten.__xor__.Tensor(x, y), COUNTS, COUNTS + 2),
        _call(lambda a, b, c: torch.addmm(a, b, c, beta=0.3, alpha=0.7), _normal(3, 5), _normal(3, 4), _normal(4, 5)),
        _call(lambda a, b, c: torch.baddbmm(a, b, c, beta=0.3, alpha=0.7), _normal(2, 3, 5), _normal(2, 3, 4), _normal(2, 4, 5)),
        _call(torch.outer, _normal(5), _normal(7)),
        _call(lambda x: torch.linalg.vector_norm(x, 3.0, dim=1), X),
        _call(lambda x: torch.linalg.vector_norm(x, 0.3), X),
        _call(lambda x: torch.linalg.vector_norm(x, 2, dim=1, keepdim=True), X),
        _call(lambda x: torch.einsum("ij,kj->ik", x, x), X),
        _call(torch.logaddexp, X, POSITIVE),
    ]


def _creation() -> list[Any]:
    like = [
        lambda x: torch.arange(0, 1, 0.1),
        lambda x: torch.arange(7),
        lambda x: torch.arange(7.0),
        lambda x: torch.arange(0.3, 5),
        lambda x: torch.arange(2, 9, dtype=torch.float32),
        lambda x: torch.linspace(0.1, 2.3, 7),
        lambda x: torch.linspace(-1, 1, 5),
        lambda x: torch.full((2, 3), 0.1),
        lambda x: torch.full((2, 3), 7),
        lambda x: torch.full_like(x, 0.1),
        lambda x: torch.fill(x, 0.1),
        lambda x: torch.scalar_tensor(0.1),
        lambda x: torch.tensor(0.1),
        lambda x: torch.tensor([0.1, 0.2, 0.7]),
        lambda x: torch.ones(2, 3),
        lambda x: torch.zeros(2, 3),
        lambda x: torch.zeros_like(x),
        lambda x: torch.ones_like(x),
        lambda x: x.new_ones(2, 3),
        lambda x: x.new_zeros(2, 3),
        lambda x: torch.eye(4),
        lambda x: torch.eye(3, 5),
        lambda x: torch.hamming_window(9),
        lambda x: torch.hamming_window(9, periodic=False),
        lambda x: torch.hamming_window(9, periodic=True, alpha=0.6),
        lambda x: torch.hamming_window(9, periodic=True, alpha=0.6, beta=0.3),
        lambda x: torch.masked_fill(x, x > 0.3, 0.1),
        lambda x: torch.masked_fill(x, x > 0.3, float("-inf")),
        lambda x: torch.where(x > 0, x, 0.1),
        lambda x: torch.scatter(x, 1, torch.tensor([[0, 2], [1, 3]]), 0.1),
        lambda x: F.pad(x, (1, 2), value=0.1),
        lambda x: F.pad(x[None], (1, 2), mode="reflect"),
        lambda x: F.pad(x[None], (1, 2), mode="replicate"),
        lambda x: F.pad(x[None], (1, 2), mode="circular"),
    ]
    return [_call(f, X) for f in like]


def _trained(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, mean.clone(), variance.clone(), w, b, training=True, eps=0.03)


def _functional(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> Any:
    return aten._native_batch_norm_legit_functional(x, w, b, mean, variance, True, 0.1, 0.03)


def _normalisation() -> list[Any]:
    x, weight, bias = _normal(3, 6, 5), _normal(6), _normal(6)
    mean, variance = _normal(6), _normal(6).abs() + 0.1
    image = _normal(2, 6, 3, 4)
    return [
        _call(lambda a: F.layer_norm(a, (5,), eps=0.03), x),
        _call(lambda a, w, b: F.layer_norm(a, (5,), w, b, eps=0.03), x, _normal(5), _normal(5)),
        _call(lambda a, w, b: F.layer_norm(a, (6, 5), w, b), x, _normal(6, 5), _normal(6, 5)),
        _call(lambda a, w: F.rms_norm(a, (5,), w, eps=0.03), x, _normal(5)),
        _call(lambda a, w, b: F.group_norm(a, 3, w, b, eps=0.03), image, weight, bias),
        _call(lambda a: F.group_norm(a, 2, eps=0.03), image),
        _call(lambda a, w, b: F.instance_norm(a, None, None, w, b, eps=0.03), image, weight, bias),
        _call(lambda a: F.instance_norm(a), image),
        _call(lambda a, m, v, w, b: F.batch_norm(a, m, v, w, b, eps=0.03), image, mean, variance, weight, bias),
        _call(lambda a, m, v: F.batch_norm(a, m, v), x, mean, variance),
        _call(
            _trained,
            image,
            mean,
            variance,
            weight,
            bias,
        ),
        _call(lambda a: F.batch_norm(a, None, None, training=True, eps=0.03), image),
        _call(lambda a, w, b: F.batch_norm(a, None, None, w, b, training=True, eps=0.03), image, weight, bias),
        _call(lambda a, w, b: aten._native_batch_norm_legit.no_stats(a, w, b, True, 0.1, 0.03), image, weight, bias),
        _call(
            _functional,
            image,
            weight,
            bias,
            mean,
            variance,
        ),
        _call(lambda a: aten.native_dropout(a, 0.3, False), x),
    ]


def _convolution() -> list[Any]:
    x1, x3 = _normal(2, 4, 9), _normal(1, 2, 4, 5, 6)
    return [
        _call(lambda a, w, b: F.conv1d(a, w, b, stride=2, padding=1), x1, _normal(6, 4, 3), _normal(6)),
        _call(lambda a, w: F.conv1d(a, w, dilation=2, groups=2), x1, _normal(6, 2, 3)),
        _call(lambda a, w, b: F.conv2d(a, w, b, stride=2, padding=1), IMAGE, _normal(6, 4, 3, 3), _normal(6)),
        _call(lambda a, w: F.conv2d(a, w, groups=4, padding=1), IMAGE, _normal(4, 1, 3, 3)),
        _call(lambda a, w, b: F.conv3d(a, w, b, padding=1), x3, _normal(3, 2, 3, 3, 3), _normal(3)),
        _call(lambda a, w, b: F.conv_transpose1d(a, w, b, stride=2, output_padding=1), x1, _normal(4, 3, 3), _normal(3)),
        _call(lambda a, w, b: F.conv_transpose2d(a, w, b, stride=2, padding=1), IMAGE, _normal(4, 3, 3, 3), _normal(3)),
        _call(lambda a, w: F.conv_transpose2d(a, w, groups=2), IMAGE, _normal(4, 3, 3, 3)),
        _call(lambda a, w: F.conv_transpose2d(a, w, dilation=2), IMAGE, _normal(4, 3, 3, 3)),
    ]


def _pooling() -> list[Any]:
    volume = _normal(1, 2, 4, 5, 6)
    return [
        _call(lambda x: F.avg_pool1d(x, 3, 2, 1), _normal(2, 4, 9)),
        _call(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), IMAGE),
        _call(lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), IMAGE),
        _call(lambda x: F.avg_pool2d(x, 2, divisor_override=3), IMAGE),
        _call(lambda x: F.avg_pool3d(x, 3, 2, 1), volume),
        _call(lambda x: F.max_pool1d(x, 3, 2, 1), _normal(2, 4, 9)),
        _call(lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
        _call(lambda x: F.max_pool2d(x, 2, 1, dilation=2), IMAGE),
        _call(lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), IMAGE),
        _call(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), IMAGE),
        _call(lambda x: F.max_pool3d(x, 3, 2, 1), volume),
        _call(lambda x: F.max_pool3d(x, 2, return_indices=True), volume),
        _call(lambda x: F.adaptive_avg_pool1d(x, 4), _normal(2, 4, 9)),
        _call(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), IMAGE),
        _call(lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
        _call(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), volume),
        _call(lambda x: aten._adaptive_avg_pool2d(x, (3, 4)), IMAGE),
        _call(lambda x: aten._adaptive_avg_pool3d(x, (2, 3, 4)), volume),
    ]


def _resizing() -> list[Any]:
    functions: list[Callable[[torch.Tensor], torch.Tensor]] = []
    for mode, corners in (("bilinear", False), ("bilinear", True), ("bicubic", False), ("bicubic", True)):
        functions += [
            lambda x, m=mode, c=corners: F.interpolate(x, (8, 9), mode=m, align_corners=c),
            lambda x, m=mode, c=corners: F.interpolate(x, scale_factor=1.7, mode=m, align_corners=c),
        ]
        if mode == "bilinear":  # TVM's code for bicubic is long, and slow to build
            functions += [
                lambda x, m=mode, c=corners: F.interpolate(x, (3, 4), mode=m, align_corners=c),
                lambda x, m=mode, c=corners: F.interpolate(x, scale_factor=2, mode=m, align_corners=c),
            ]
    functions += [
        lambda x: F.interpolate(x, (8, 9), mode="nearest"),
        lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        lambda x: F.interpolate(x, scale_factor=1.7, mode="nearest"),
        lambda x: F.interpolate(x, (3, 4), mode="nearest"),
        lambda x: F.interpolate(x, (8, 9), mode="bilinear", antialias=True),
        lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True),
        lambda x: F.pixel_shuffle(x, 2),
    ]
    calls = [_call(f, IMAGE) for f in functions]
    grid, theta = torch.rand(2, 3, 4, 2, generator=_generator) * 1.8 - 0.9, _normal(2, 2, 3)
    outside = torch.rand(2, 3, 4, 2, generator=_generator) * 4 - 2
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (False, True) if mode != "bicubic" else (padding == "border",):
                calls += [
                    _call(
                        lambda x, g, m=mode, p=padding, c=corners: F.grid_sample(x, g, mode=m, padding_mode=p, align_corners=c),
                        IMAGE,
                        outside if padding == "border" else grid,
                    )
                ]
    calls += [
        _call(lambda x, g: F.grid_sample(x, g, align_corners=True), IMAGE, outside),
        _call(lambda t: aten.affine_grid_generator(t, [2, 3, 4, 5], True), theta),
        _call(lambda t: aten.affine_grid_generator(t, [2, 3, 4, 5], False), theta),
    ]
    boxes = torch.tensor([[0, 0.3, 0.4, 3.7, 2.9], [1, 1.1, 0.2, 6.3, 4.1]])
    for aligned in (False, True):
        for ratio in (2, -1):
            calls.append(
                _call(lambda x, b, r=ratio, a=aligned: torch.ops.torchvision.roi_align(x, b, 0.7, 3, 2, r, a), IMAGE, boxes)
            )
    return calls


def _recurrent() -> list[Any]:
    calls = []
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        torch.manual_seed(0)
        for options in ({}, {"batch_first": True}, {"bidirectional": True}, {"num_layers": 2}, {"bias": False}):
            module = kind(5, 4, **options).eval()
            names, values = zip(*module.named_parameters(), strict=True)

            def apply(x: torch.Tensor, *parameters: torch.Tensor, module: Any = module, names: Any = names) -> Any:
                output, _ = torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x,))
                return output

            calls.append(_call(apply, _normal(3, 2, 5), *(value.detach() for value in values)))
    return calls


def _selection() -> list[Any]:
    ties = torch.tensor([[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 1.0]])
    return [
        _call(lambda x: torch.sort(x, 1), X),
        _call(lambda x: torch.sort(x, 0, descending=True), X),
        _call(lambda x: torch.sort(x, dim=1, stable=True), ties),
        _call(lambda x: torch.argsort(x, 1), X),
        _call(lambda x: torch.argsort(x, 1, descending=True), X),
        _call(lambda x: torch.topk(x, 3), X),
        _call(lambda x: torch.topk(x, 2, largest=False), X),
        _call(lambda x: torch.topk(x, 2), ties),
        _call(lambda x: torch.max(x, 1), X),
        _call(lambda x: torch.median(x, 1), X),
        _call(lambda x: torch.median(x), X),
        _call(lambda x: torch.argmax(x, 1), X),
        _call(lambda x: torch.argmin(x, 0, keepdim=True), X),
        _call(lambda x: F.one_hot(x, 9), _whole(9, 4, 3)),
        _call(lambda x, b: torch.bucketize(x, b), X, torch.tensor([-1.0, -0.1, 0.3, 1.0])),
        _call(lambda x, b: torch.bucketize(x, b, right=True), X, torch.tensor([-1.0, -0.1, 0.3, 1.0])),
        _call(lambda x, t: torch.isin(x, t), COUNTS, torch.tensor([1, 3, -2])),
        _call(lambda x, t: torch.isin(x, t), X, X[0, :3].clone()),
        _call(lambda x: torch.any(x, 1), FLAGS),
        _call(lambda x: torch.any(x, (0, 1)), FLAGS),
        _call(lambda x: torch.any(x, 1), X),
        _call(lambda x: x[:, -1], X),
        _call(lambda x: torch.select(x, 1, 2), X),
        _call(lambda x: x[1:3, ::2], X),
        _call(lambda x: torch.narrow(x, 1, 2, 3), X),
        _call(lambda x, i: x[i], X, torch.tensor([0, 2, 1])),
        _call(lambda x, i: x[:, i], X, torch.tensor([0, 2, -1])),
        _call(lambda x, i, j: x[i, j], X, torch.tensor([0, 2, 1]), torch.tensor([5, 0, 3])),
        _call(lambda x, i: x[i, :, i], _normal(4, 3, 4), torch.tensor([0, 2, 1])),
        _call(lambda x, i, v: x.index_put((i,), v), X, torch.tensor([0, 2]), _normal(2, 6)),
        _call(lambda x, i, v: x.index_put((i,), v, accumulate=True), X, torch.tensor([0, 0]), _normal(2, 6)),
        _call(lambda x, i: torch.gather(x, 1, i), X, _whole(6, 4, 3)),
        _call(lambda x, i: torch.take(x, i), X, _whole(24, 5)),
        _call(lambda x, i: torch.index_select(x, 1, i), X, torch.tensor([0, 2, 1])),
        _call(lambda x, m: torch.masked_select(x, m), X, FLAGS),
        _call(lambda x, s: torch.slice_scatter(x, s, 1, 1, 5, 2), X, _normal(4, 2)),
        _call(lambda x, i, s: torch.scatter(x, 1, i, s), X, torch.tensor([[0, 2], [1, 3]]), _normal(2, 2)),
        _call(lambda i, w: F.embedding(i, w), _whole(9, 4, 3), _normal(9, 5)),
        _call(lambda x: torch.as_strided(x, (2, 3), (3, 1)), X),
        _call(lambda x: torch.as_strided(x, (3, 3), (1, 2)), X),
        _call(lambda x: torch.diagonal(x, 1), X),
        _call(lambda x: torch.unbind(x, 1)[2], X),
        _call(lambda x: torch.chunk(x, 4, 1), X),
        _call(lambda x: torch.split(x, 4, 1), X),
        _call(lambda x: torch.split(x, [1, 2, 3], 1), X),
        _call(lambda x: torch.roll(x, (1, -2), (0, 1)), X),
        _call(lambda x: torch.flip(x, (0, 1)), X),
        _call(lambda x: torch.cumsum(x, 1), X),
        _call(lambda x: torch.cumprod(x, 1), X),
        _call(lambda x: torch.cumsum(x, 1), FLAGS),
        _call(lambda x: torch.tril(x, 1), X),
        _call(lambda x: torch.meshgrid(x, x * 2, indexing="xy"), _normal(4)),
        _call(lambda x: torch.meshgrid(x, x * 2, indexing="ij"), _normal(4)),
        _call(lambda x: aten.meshgrid([x, x]), _normal(4)),
        _call(lambda x: aten.copy(x, x * 0.1), X),
        _call(lambda x: aten.concat([x, x], 1), X),
        _call(lambda x: x.to(torch.int32), X * 5),
        _call(lambda x: x.to(torch.float32) * 0.1, COUNTS),
        _call(lambda x, y: x.type_as(y), COUNTS, X),
        _call(lambda x: aten.to.dtype_layout(x, dtype=torch.int64), X * 5),
        _call(lambda x: aten._to_copy(x, dtype=torch.bool), X),
        _call(lambda x: aten.lift_fresh_copy(x), X),
        _call(lambda x: x.t().contiguous(), X),
        _call(lambda x: x.unflatten(1, (2, 3)), X),
        _call(lambda x: x.flatten(), IMAGE),
        _call(lambda x, y: x.reshape_as(y), X, _normal(6, 4)),
        _call(lambda x, y: x.expand_as(y), _normal(1, 6), X),
    ]


def _reductions() -> list[Any]:
    mask = torch.where(FLAGS[:, :4], 0.0, -1.5)
    query, key, value = _normal(2, 3, 4, 5), _normal(2, 3, 6, 5), _normal(2, 3, 6, 5)
    return [
        _call(lambda x: torch.var(x, 1), X),
        _call(lambda x: torch.var(x, 1, correction=0), X),
        _call(lambda x: torch.std(x, 1, correction=2, keepdim=True), X),
        _call(lambda x: torch.std(x, 1), X),
        _call(lambda x: torch.std(x, (0, 1), correction=0), X),
        _call(lambda x: torch.mean(x, 1), X),
        _call(lambda x: torch.mean(x, dtype=torch.float32), COUNTS),
        _call(lambda x: torch.sum(x, 1), FLAGS),
        _call(lambda x: torch.prod(x), X),
        _call(lambda x, t: F.cross_entropy(x, t), X, _whole(6, 4)),
        _call(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), X, _whole(6, 4)),
        _call(lambda x, t, w: F.cross_entropy(x, t, w, reduction="sum"), X, _whole(6, 4), POSITIVE[0]),
        _call(F.scaled_dot_product_attention, query, key, value),
        _call(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), query),
        _call(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), query, mask),
        _call(lambda q: F.scaled_dot_product_attention(q, q, q, scale=0.3), query),
        _call(lambda x, w: F.prelu(x, w), IMAGE, _normal(4)),
        _call(lambda x, w, b: F.linear(x, w, b), X, _normal(5, 6), _normal(5)),
        _call(lambda x, w: F.linear(x, w), X, _normal(5, 6)),
        _call(lambda x: aten.std.correction(x, [1]), X),
    ]


CALLS = (
    _activations()
    + _arithmetic()
    + _creation()
    + _normalisation()
    + _convolution()
    + _pooling()
    + _resizing()
    + _recurrent()
    + _selection()
    + _reductions()
)
"""All of them: functions, each with its tensors."""

"""Runs the code of a workaround as a user would who pastes it beside the call of `locate`."""

from typing import Any

import numpy as np
import torch
import tvm
from torch.utils import _pytree as pytree
from tvm import relax


def pasted(code: str, **names: Any) -> Any:
    """The executable that the code builds; `names` are what the user has: model, inputs, kwargs, convert_map, pipeline."""
    exec(compile(code, "pasted.py", "exec"), names)
    return names["executable"]


def run(executable: Any, tensors: Any) -> list[np.ndarray[Any, Any]]:
    """Its outputs, flat."""
    machine = relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(tensor.numpy()) for tensor in pytree.tree_leaves(tensors)])
    return [array.numpy() for array in ([result] if hasattr(result, "numpy") else result)]


def agrees(executable: Any, tensors: Any, expected: Any, *, small: float = 3e-7) -> bool:
    """True if it gives what PyTorch gave, to float32's digits; `small` is what may be missed, relative to the largest."""
    pairs = zip(run(executable, tensors), pytree.tree_leaves(expected), strict=True)
    return all(_close(torch.from_numpy(actual), wanted.detach(), small) for actual, wanted in pairs)


def _close(actual: torch.Tensor, expected: torch.Tensor, small: float) -> bool:
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if not expected.is_floating_point():
        return torch.equal(actual, expected)
    largest = float(expected[torch.isfinite(expected)].abs().max())
    return torch.allclose(actual, expected, rtol=1e-6, atol=small * largest, equal_nan=True)

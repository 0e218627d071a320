"""What a user's model and process look like, to be compared before and after."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")


def state_of(model: nn.Module) -> dict[str, Any]:
    """Everything about a model that a user could miss."""
    return {
        "training": [module.training for module in model.modules()],
        "modules": {name: id(module) for name, module in model.named_modules(remove_duplicate=False)},
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
        "hooks": {name: [list(getattr(module, kind, {}).values()) for kind in HOOKS] for name, module in model.named_modules()},
        "forward": {name: module.forward.__func__ for name, module in model.named_modules()},
    }


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return dict(named)


@contextmanager
def unchanged(model: nn.Module | None = None) -> Iterator[None]:
    """Fail if the model, or the process, is another afterwards. Whatever is raised inside goes on."""
    state = state_of(model) if model is not None else {}
    tensors = tensors_of(model) if model is not None else {}
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    facts = {name: (id(t), t.data_ptr(), t.requires_grad, t.grad, t.dtype, t._version) for name, t in tensors.items()}
    torch_state, python_state, numpy_state = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    settings = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_default_device()
    try:
        yield
    finally:
        if model is not None:
            assert state_of(model) == state
            now = tensors_of(model)
            assert {n: (id(t), t.data_ptr(), t.requires_grad, t.grad, t.dtype, t._version) for n, t in now.items()} == facts
            for name, tensor in now.items():
                torch.testing.assert_close(tensor.detach(), copies[name], rtol=0, atol=0, equal_nan=True, msg=name)
        assert torch.equal(torch.get_rng_state(), torch_state)
        assert random.getstate() == python_state
        after = np.random.get_state()  # noqa: NPY002
        assert all(np.array_equal(one, other) for one, other in zip(after, numpy_state, strict=True))
        assert (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_default_device()) == settings

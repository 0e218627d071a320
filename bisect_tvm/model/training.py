"""Which parts of a model in training mode compute something else than in evaluation mode."""

import inspect
from collections import Counter

from torch import nn


def training_differences(model: nn.Module) -> str:
    """Describe what training mode changes in `model`; ``""`` if nothing that can be seen.

    A fresh `nn.Linear` is "in training mode" too, but computes the same in both; only modules whose result depends on the mode
    count: dropout, batch statistics, and user classes whose forward reads `self.training`.
    """
    found: Counter[str] = Counter()
    for module in model.modules():
        if module.training and (difference := _difference(module)):
            found[difference] += 1
    return ", ".join(f"{text} ({count} modules)" if count > 1 else text for text, count in found.items())


def _difference(module: nn.Module) -> str:
    name = type(module).__name__
    # The public base classes of dropout and batch norm are private names; a public member of each family leads to them.
    if isinstance(module, nn.Dropout.__mro__[1]):
        rate = float(getattr(module, "p", 0.0))
        return f"{name} drops elements at random (p={rate:g})" if rate > 0 else ""
    if isinstance(module, nn.BatchNorm1d.__mro__[1] | nn.InstanceNorm1d.__mro__[1]):
        # Without running statistics both modes use those of the batch.
        return f"{name} uses the statistics of the batch" if module.running_mean is not None else ""
    if isinstance(module, nn.RReLU):
        return f"{name} draws random slopes"
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention | nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        rate = module.dropout if isinstance(module.dropout, float | int) else 0.0
        return f"{name} drops elements at random (dropout={rate:g})" if rate > 0 else ""
    if type(module).__module__.split(".")[0] == "torch":
        return ""
    return f"{name}.forward reads self.training" if _reads_training(module) else ""


def _reads_training(module: nn.Module) -> bool:
    try:
        return "self.training" in inspect.getsource(type(module).forward)
    except (OSError, TypeError):  # defined in a prompt, or not in Python: nothing to read
        return False

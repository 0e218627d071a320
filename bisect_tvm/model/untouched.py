"""The user's process is left as it was found."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Put the random number generators of torch (CPU), numpy and Python, and torch's default dtype, back afterwards."""
    # The global generator of numpy is what user code may rely on.
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    dtype = torch.get_default_dtype()
    # torch.export cannot trace in inference mode, and tensors made in it could not be used outside.
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002

"""The user's process is left as it was found."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch

from bisect_tvm.cores import cores


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Put the random number generators of torch (CPU), numpy and Python, torch's default dtype and threads, back afterwards.

    Meanwhile torch leaves one core to TVM: threads that wait for each other while something else has the core wait very long.
    """
    # The global generator of numpy is what user code may rely on.
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    # torch.export cannot trace in inference mode, and tensors made in it could not be used outside.
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        torch.set_num_threads(max(1, min(threads, cores() - 1)))
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.set_default_dtype(dtype)
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002

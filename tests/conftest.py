import os

from hypothesis import settings

# The tensors are small, and there may be a test process on every core: threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# On a busy machine one example may take long for no fault of the code.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

"""How much may be spent: builds and seconds."""

import time

from bisect_tvm.errors import InputError, StoppedError
from bisect_tvm.interrupts import raise_lost


class Budget:
    """Counts what is spent; raises `StoppedError` where that would be more than allowed.

    Args:
        builds: TVM builds, None for any number.
        seconds: wall time from now, None for any. A build that has begun is finished.

    Raises:
        InputError: a limit is not a positive number.
    """

    def __init__(self, builds: int | None, seconds: float | None) -> None:
        if builds is not None and (isinstance(builds, bool) or not isinstance(builds, int) or builds < 1):
            raise InputError(f"`max_builds` must be a whole number from 1, or None, but it is {builds!r}.")
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0):
            raise InputError(f"`max_seconds` must be a number above 0, or None, but it is {seconds!r}.")
        self._builds, self._seconds = builds, seconds
        self._spent = 0
        self._start = time.monotonic()

    def build(self) -> None:
        """Ask for one more build."""
        self.check()
        if self._builds is not None and self._spent >= self._builds:
            raise StoppedError(f"max_builds={self._builds} was spent")
        self._spent += 1

    def check(self) -> None:
        """See whether there is time left, and the user still wants it."""
        raise_lost()
        if self._seconds is not None and time.monotonic() - self._start > self._seconds:
            raise StoppedError(f"max_seconds={self._seconds:g} was spent")

"""Ctrl-C where it would be lost.

Where Python that TVM calls (a pass, a legalization) is interrupted, TVM hands on an error of its own (a `RuntimeError` without a
message, seen in TVM 0.27), which would pass for TVM's refusal of whatever is being built.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_pressed = threading.Event()


@contextmanager
def noticed() -> Iterator[None]:
    """Remember Ctrl-C while this is entered, unless somebody else handles it."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours:
        yield
        return

    def note(number: int, frame: Any) -> None:
        _pressed.set()
        signal.default_int_handler(number, frame)

    _pressed.clear()
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _pressed.clear()


def raise_lost() -> None:
    """Raise `KeyboardInterrupt` if Ctrl-C was pressed and nobody has said that it was seen."""
    if _pressed.is_set():
        _pressed.clear()
        raise KeyboardInterrupt


def seen() -> None:
    """What was pressed has been heard."""
    _pressed.clear()

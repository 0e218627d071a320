"""Errors that a user can act on.

Each message is one sentence or two: what was wrong, where, and what to do. The command line prints the message alone and exits with
status 2; the traceback is shown with ``--debug``.
"""


class BisectError(Exception):
    """Base of every error that `bisect_tvm` raises on purpose."""


class InputError(BisectError):
    """What the user passed in cannot be used: model, inputs, SPEC, target, converter map or output folder."""


class CaptureError(BisectError):
    """`torch.export` could not capture the model."""


class ReportError(BisectError):
    """A saved report cannot be read: damaged, truncated or of another version."""


class UnsupportedVersionError(BisectError):
    """An interface of torch or TVM that this project relies on is not there."""


class StoppedError(BisectError):
    """The budget is spent; `locate` reports what it knows by then, so that this does not reach the user."""


def one_line(error: BaseException) -> str:
    """What an error of somebody else's code says, as a part of one of our own sentences.

    Args:
        error: The error; its message may have many lines, or none.

    Returns:
        Its type, and the first line of its message without the full stop.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__

"""What rdmad's calls raise."""
from __future__ import annotations

import builtins
import errno
import os
from typing import NoReturn


class Error(OSError):
    """A call failed. ``errno`` is a positive number, ``strerror`` a sentence for people."""


class Conflict(Error):
    """The condition of a set or delete did not hold."""


class NoSpace(Error):
    """The store, the disk of its log, or what this client may store is full; or the value is too long."""


class Gone(Error, ConnectionError):
    """There is no connection, or none any more. ``carried_out`` is False where the request certainly was not, None where it may have been."""

    carried_out: bool | None = None


class TimeoutError(Error, builtins.TimeoutError):  # pylint: disable=redefined-builtin
    """No answer came for too long. The request may have been carried out."""


class Denied(Error, PermissionError):
    """The server does not admit this client, or the client may not do that."""


class Corrupt(Error):
    """A value that was stored with a checksum has another one, or another length."""


class WrongType(Error):
    """The value is not of a type that the call takes: it is a hash, say."""


CLASSES: dict[int, type[Error]] = {
    errno.EEXIST: Conflict, errno.ESTALE: Conflict, errno.ENOSPC: NoSpace, errno.EDQUOT: NoSpace, errno.EMSGSIZE: NoSpace,
    errno.ECONNREFUSED: Gone, errno.EHOSTUNREACH: Gone, errno.ENETUNREACH: Gone, errno.ECONNABORTED: Gone,
    errno.ENOTCONN: Gone, errno.ESHUTDOWN: Gone, errno.ECONNRESET: Gone, errno.EPIPE: Gone,
    errno.ETIMEDOUT: TimeoutError, errno.EACCES: Denied, errno.EPERM: Denied, errno.EMEDIUMTYPE: WrongType,
}


def error_of(status: int, sentence: str) -> Error:
    """The error of a negative status."""
    error = CLASSES.get(-status, Error)(-status, sentence or os.strerror(-status))
    if isinstance(error, Gone) and status not in (-errno.ECONNABORTED, -errno.ECONNRESET, -errno.EPIPE):
        error.carried_out = False
    return error


def fail(status: int, sentence: str) -> NoReturn:
    raise error_of(status, sentence)

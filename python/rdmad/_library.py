"""librdmad and librdma_lib, loaded once, and what all of this package does with memory."""
from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, NoReturn, Tuple, TypeVar, Union

from . import _declarations as d
from .errors import fail

Key = Union[str, bytes]
#: bytes, bytearray, memoryview, array.array, a numpy array, ...: anything with the buffer protocol, in one piece; or
#: memory as (address, length).
Buffer = Any
H = TypeVar("H", bound="Handle")


def _load(name: str, variable: str, package: str) -> ctypes.CDLL:
    path = os.environ.get(variable)
    try:
        return ctypes.CDLL(path or name)
    except OSError as error:
        raise ImportError(f"{error}: install {package}, or set {variable} to the path of {name}") from None


def _declare(library: ctypes.CDLL, prefixes: Tuple[str, ...]) -> ctypes.CDLL:
    for name, (result, arguments) in d.FUNCTIONS.items():
        if name.startswith(prefixes):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    return library


def rdma_library() -> ctypes.CDLL:
    """librdma_lib, which only programs that talk as equals need."""
    return _declare(_load("librdma_lib.so.1", "RDMA_LIB_LIBRARY", "librdma-lib1"), ("rdma_",))


library = _declare(_load("librdmad.so.6", "RDMAD_LIBRARY", "librdmad6"), ("kv_", "rdmad_"))

# Where the bytes of a bytes object begin: the header is as long as an empty one, without the 0 byte at the end.
_BYTES_AT = sys.getsizeof(b"") - 1
if ctypes.string_at(id(b"rdmad") + _BYTES_AT, 5) != b"rdmad":
    raise ImportError("this Python keeps the bytes of its objects elsewhere than CPython does")


class _Py_buffer(ctypes.Structure):
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_Py_buffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_Py_buffer)]
_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes, _new_bytes.restype = [ctypes.c_void_p, ctypes.c_ssize_t], ctypes.py_object

_WRITABLE = 1  # PyBUF_WRITABLE; without strides, so in one piece


class Memory:
    """The memory of an object, which cannot move or be freed while this lives."""

    __slots__ = ("address", "length", "_view")
    _view: _Py_buffer | None

    def __init__(self, buffer: Buffer, writable: bool = False):
        self._view = None
        if isinstance(buffer, tuple):
            self.address, self.length = buffer
        else:
            view = _Py_buffer()
            _get_buffer(buffer, ctypes.byref(view), _WRITABLE if writable else 0)
            self._view = view
            self.address, self.length = view.buf or 0, view.len

    def __del__(self) -> None:
        view = getattr(self, "_view", None)
        if view is not None:
            _release_buffer(ctypes.byref(view))


def address_of(buffer: Buffer) -> tuple[int, int, Any]:
    """Where readable memory is, how long, and what must live as long as it is used."""
    if type(buffer) is bytes:
        return id(buffer) + _BYTES_AT, len(buffer), buffer
    memory = Memory(buffer)
    return memory.address, memory.length, memory


def bytes_address(data: bytes) -> int:
    return id(data) + _BYTES_AT


def new_bytes(length: int) -> bytes:
    """A bytes object whose bytes are still to be written, before any other code sees it."""
    return _new_bytes(None, length)


def encoded(key: Key) -> bytes:
    return key if type(key) is bytes else key.encode() if isinstance(key, str) else bytes(key)


class Handle:
    """What a library has made for the program, until close() or the end of ``with``. A subclass says how it ends."""

    _what = "handle"
    _handle: int | None = None

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.close()
        except OSError:
            if kind is None:
                raise

    def __del__(self) -> None:
        handle, self._handle = self._handle, None
        if handle:
            self._end(handle)

    @property
    def _open(self) -> int:
        if not self._handle:
            raise ValueError(f"the {self._what} is closed")
        return self._handle

    def _end(self, handle: int) -> int:
        """0, or why it did not end well."""
        raise NotImplementedError

    def close(self) -> None:
        """End it. It may be called again."""
        handle, self._handle = self._handle, None
        if handle:
            status = self._end(handle)
            if status:
                raise_last(status)


def sentence() -> str:
    return library.rdmad_error().decode(errors="replace")


def raise_last(status: int) -> NoReturn:
    fail(status, sentence())

"""Memory of devices, as of tensors on an accelerator, and what of it a Store has registered."""
from __future__ import annotations

import ctypes
import errno
import math
import os
import threading
from typing import Any, NamedTuple, Sequence

from ._library import Buffer, Memory, address_of
from .errors import Error

_HOST = (1, 3)  # kinds of devices of DLPack: the processor, and its memory that CUDA has pinned


class Piece(NamedTuple):
    """Of a device's memory."""

    address: int
    length: int
    readonly: bool
    owner: Any


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def _length(shape: Sequence[int], strides: Sequence[int] | None, size: int) -> int:
    """Bytes of an array whose items have `size`; its strides are in bytes. BufferError: it is not in one piece."""
    expected = size
    for extent, stride in zip(reversed(shape), reversed(strides or ())):
        if extent > 1 and stride != expected:
            raise BufferError("the array is not contiguous")
        expected *= extent
    return math.prod(shape) * size


def _of_cuda(owner: Any) -> Piece | None:
    interface = getattr(owner, "__cuda_array_interface__", None)
    if interface is None:
        return None
    address, readonly = interface["data"]
    return Piece(address, _length(interface["shape"], interface.get("strides"), int(interface["typestr"][2:])), readonly, owner)


def _of_dlpack(owner: Any) -> Piece | None:
    device = getattr(owner, "__dlpack_device__", None)
    if device is None or device()[0] in _HOST:
        return None
    capsule = owner.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    size = (tensor.bits * tensor.lanes + 7) // 8
    strides = [each * size for each in tensor.strides[:tensor.ndim]] if tensor.strides else None
    return Piece((tensor.data or 0) + tensor.byte_offset, _length(tensor.shape[:tensor.ndim], strides, size), False, (owner, capsule))


def device_piece(owner: Any) -> Piece | None:
    """What the object has in a device's memory: by __cuda_array_interface__ or __dlpack__. None: nothing."""
    return None if isinstance(owner, (bytes, bytearray, memoryview, tuple)) else _of_cuda(owner) or _of_dlpack(owner)


_lock = threading.Lock()
_registered: list[tuple[int, int]] = []  # addresses and lengths, one for each registration


def registered(address: int, length: int) -> None:
    with _lock:
        _registered.append((address, length))


def unregistered(address: int, length: int) -> None:
    with _lock:
        _registered.remove((address, length))


def _is_registered(piece: Piece) -> bool:
    with _lock:
        return any(address <= piece.address and piece.address + piece.length <= address + length
                   for address, length in _registered)


class Place(Memory):
    """The memory of a value: an object's that a processor reads, or a registered device's."""

    __slots__ = ("device", "_owner")

    def __init__(self, buffer: Buffer, writable: bool = False, register: bool = False):
        self.device: Piece | None = None
        try:
            super().__init__(buffer, writable)
            return
        except TypeError:
            self.device = device_piece(buffer)
            if self.device is None:
                raise
        if writable and self.device.readonly:
            raise BufferError("the array is read-only")
        if not register and not _is_registered(self.device):
            raise Error(errno.EFAULT, "a processor cannot reach memory of a device: register() it with the store first")
        self.address, self.length = self.device.address, self.device.length


def value_of(buffer: Buffer) -> tuple[int, int, Any]:
    """As address_of(), also of a registered device's memory."""
    if type(buffer) is bytes:
        return address_of(buffer)
    place = Place(buffer)
    return place.address, place.length, place


def require_cuda() -> None:
    """The library knows addresses of CUDA only, where this program has it."""
    try:
        ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except OSError:
        raise Error(errno.EOPNOTSUPP, "memory of a device is registered by its address in programs with CUDA alone: "
                                      "use register_dmabuf()") from None

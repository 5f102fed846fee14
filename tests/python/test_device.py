"""Values in memory of devices: arrays on the device of tests/fake's CUDA, and a file in memory as a dmabuf."""
import ctypes
import errno
import mmap
import os

import numpy
import pytest

import rdmad

SIZE = 1 << 20


class Device:
    """Memory of CUDA, and arrays on it."""

    def __init__(self):
        path = os.environ.get("RDMAD_TEST_CUDA", "")
        if not os.path.exists(path):
            pytest.skip(f"RDMAD_TEST_CUDA={path} is not there")
        self.cuda = ctypes.CDLL(path)
        pointer = ctypes.c_uint64()
        assert self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(SIZE)) == 0
        self.address = pointer.value

    def put(self, at, data):
        assert self.cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(self.address + at), data, ctypes.c_size_t(len(data))) == 0

    def get(self, at, length):
        data = ctypes.create_string_buffer(length)
        assert self.cuda.cuMemcpyDtoH_v2(data, ctypes.c_uint64(self.address + at), ctypes.c_size_t(length)) == 0
        return data.raw

    def free(self):
        self.cuda.cuMemFree_v2(ctypes.c_uint64(self.address))


@pytest.fixture
def device():
    made = Device()
    yield made
    made.free()


class Tensor:
    """As torch and cupy tell of one."""

    def __init__(self, address, shape, typestr="|u1", strides=None, readonly=False):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "strides": strides, "version": 3,
                                         "data": (address, readonly)}


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


class Exchanged:
    """Four bytes an item, by DLPack."""

    def __init__(self, address, items, kind=2, stride=None):
        self.shape = (ctypes.c_int64 * 1)(items)
        self.strides = (ctypes.c_int64 * 1)(stride) if stride else None
        self.tensor = DLTensor(address - 8, kind, 0, 1, 2, 32, 1, ctypes.addressof(self.shape),
                               ctypes.addressof(self.strides) if stride else None, 8)
        self.kind = kind

    def __dlpack_device__(self):
        return self.kind, 0

    def __dlpack__(self):
        make = ctypes.pythonapi.PyCapsule_New
        make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


def registers(store):
    return store.transport != "rdma"  # Soft-RoCE takes no dmabuf


@pytest.mark.parametrize("length", [1, 64, 4096, 4097, 300_000])
def test_values(store, device, length):
    if not registers(store):
        pytest.skip("this device takes no dmabuf")
    data = os.urandom(length)
    whole, part = Tensor(device.address, (SIZE,)), Tensor(device.address + 100, (length,))
    with store.register(whole) as registration:
        assert (registration.address, registration.length) == (device.address, SIZE)
        device.put(100, data)
        store.set("t:k", part)
        assert store["t:k"] == data
        device.put(100, bytes(length))
        assert store.get_into("t:k", part) == length
        assert device.get(100, length) == data
        device.put(100, bytes(length))
        assert store.get_many_into(["t:k", "t:none"], [part, whole]) == [length, None]
        assert device.get(100, length) == data
        store.set_many({"t:l": part})
        assert store["t:l"] == data
        assert store.get_set("t:l", part) == data
        host = bytearray(10)
        store.put_pieces("t:p", [b"0123456789", part])
        assert store["t:p"] == b"0123456789" + data
        device.put(100, bytes(length))
        assert store.get_pieces("t:p", [host, part]) == length + 10
        assert host == b"0123456789" and device.get(100, length) == data
        with store.batch() as batch:
            batch.set("t:b", part)
        with store.batch() as batch:
            got = batch.get_into("t:b", Exchanged(device.address + 8000, (length + 3) // 4))
        assert got.result() == length and device.get(8000, length) == data


def test_refused(store, device):
    tensor = Tensor(device.address, (100,))
    for call in (lambda: store.set("t:k", tensor), lambda: store.get_into("t:k", tensor), lambda: store.set_many({"t:k": tensor}),
                 lambda: store.put_pieces("t:k", [tensor]), lambda: store.batch().set("t:k", tensor)):
        with pytest.raises(rdmad.Error, match="register") as raised:
            call()
        assert raised.value.errno == errno.EFAULT
    for call in (lambda: store.append("t:k", tensor), lambda: store.set_range("t:k", 0, tensor), lambda: store.get(tensor),
                 lambda: store.register(object()), lambda: store.set("t:k", object())):
        with pytest.raises(TypeError):
            call()
    for bad in (Tensor(device.address, (10, 10), strides=(20, 1)), Tensor(device.address, (100,), readonly=True),
                Exchanged(device.address, 5, stride=2)):
        with pytest.raises(BufferError):
            store.register(bad)
    with pytest.raises(TypeError):
        store.register(Exchanged(device.address, 5, kind=1))
    if not registers(store):
        with pytest.raises(rdmad.Error, match="dmabuf") as raised:
            store.register(tensor)
        assert raised.value.errno == errno.EOPNOTSUPP
        return
    with store.register(tensor):
        with pytest.raises(rdmad.Error, match="register"):
            store.set("t:k", Tensor(device.address + 50, (51,)))
        with pytest.raises(rdmad.Error, match="memory of a device"):
            store.put_pieces("t:k", [tensor], checksum=True)
        with pytest.raises(rdmad.Error, match="memory of a device"):
            store.append("t:k", (device.address, 10))
    assert store.get("t:k") is None


def test_registrations_end(address, device):
    tensor = Tensor(device.address, (100,))
    with rdmad.Store(address) as store, rdmad.Store(address) as other:
        if not registers(store):
            pytest.skip("this device takes no dmabuf")
        registration = store.register(tensor)
        with pytest.raises(rdmad.Error, match="this handle"):
            other.set("t:k", tensor)
        with pytest.raises(rdmad.Conflict):
            store.register(tensor)
        registration.close()
        again = store.register(tensor)
        registration.close()
        store.set("t:k", tensor)
        store.close()
        again.close()
        with pytest.raises(rdmad.Error, match="register"):
            other.set("t:k", tensor)


def test_numpy_is_of_the_host(store):
    array = numpy.arange(5000, dtype=numpy.int32)
    with store.register(array):
        store.set("t:k", array)
    assert store["t:k"] == array.tobytes()


def test_dmabuf(store):
    descriptor = os.memfd_create("device", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, SIZE)
        if not registers(store):
            with pytest.raises(rdmad.Error, match="dmabuf") as raised:
                store.register_dmabuf(descriptor, SIZE)
            assert raised.value.errno == errno.EOPNOTSUPP
            return
        with mmap.mmap(descriptor, SIZE) as inside, store.register_dmabuf(descriptor, 9000, offset=4096) as registration:
            inside[4096:4096 + 9000] = bytes(range(250)) * 36
            store.set("t:k", (registration.address, 9000))
            assert store["t:k"] == bytes(range(250)) * 36
            store.set("t:k", b"short")
            assert store.get_into("t:k", (registration.address + 100, 50)) == 5
            assert inside[4196:4201] == b"short"
        with pytest.raises(rdmad.Error, match="bytes at 0"):
            store.register_dmabuf(descriptor, SIZE + 1)
        with pytest.raises(ValueError):
            store.register_dmabuf(-1, 10)
    finally:
        os.close(descriptor)

"""rdmad for Python: the key/value store over RDMA, shared memory, UNIX sockets or TCP, whichever the server and this
machine have. See rdmad-python(7)."""
from . import _library
from ._requests import Meta, Pending
from .aio import AsyncStore
from .errors import Conflict, Corrupt, Denied, Error, Gone, NoSpace, TimeoutError, WrongType  # pylint: disable=redefined-builtin
from .store import Batch, Info, Registration, Store
from .watch import AsyncWatch, Event, Watch

#: Of the library.
__version__: str = _library.library.rdmad_version().decode()

__all__ = ["AsyncStore", "AsyncWatch", "Batch", "Conflict", "Corrupt", "Denied", "Error", "Event", "Gone", "Info", "Meta", "NoSpace",
           "Pending", "Registration", "Store", "TimeoutError", "Watch", "WrongType"]

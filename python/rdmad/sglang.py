"""SGLang's third level of the cache of keys and values, in rdmad: a dynamic backend of its HiCache.

    --enable-hierarchical-cache --hicache-storage-backend dynamic --hicache-storage-backend-extra-config
    '{"backend_name": "rdmad", "module_path": "rdmad.sglang", "class_name": "Storage", "interface_v1": 1,
      "address": "server", "prefix": "prod:"}'

A page is one value, whose pieces (keys and values, or those of each layer) are read and written where they are in the host's
pool. Pages are named by what they hold, so a page that is there is right. Made for the interface as it was at
sgl-project/sglang 001067f, hicache_storage.py.
"""
from __future__ import annotations

import logging
from typing import Any, Iterator, NamedTuple, Sequence

from ._library import Buffer
from .errors import Error
from .store import Registration, Store, options_among

try:
    from sglang.srt.mem_cache.hicache_storage import (  # type: ignore[import]
        HiCacheStorage as _Base, PoolTransferResult as _Result)
except ImportError:
    _Base = object

    class _Result(NamedTuple):  # type: ignore[no-redef]
        """As SGLang's, where that is not installed."""

        kv_hit_pages: int
        extra_pool_hit_pages: dict[str, int]

_log = logging.getLogger(__name__)
_KV = "kv"


def _tensor_memory(tensor: Any) -> Buffer:
    """Of torch's tensors, or anything with their names for this. One on a device has to be registered."""
    if getattr(tensor, "is_cuda", False):
        return tensor
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def _pool_name(name: Any) -> str:
    """Of an enum or a text."""
    return str(getattr(name, "value", name))


class Storage(_Base):  # type: ignore[misc]
    """Made by SGLang: storage_config is a HiCacheStorageConfig, whose extra_config has what was given on the command line."""

    def __init__(self, storage_config: Any, kwargs: dict[str, Any] | None = None):
        extra = {**(getattr(storage_config, "extra_config", None) or {}), **(kwargs or {})}
        self.store = Store(extra.get("address", "127.0.0.1"), **options_among(extra))
        self._prefix = extra.get("prefix", "")
        self._checksum = bool(extra.get("checksum", False))
        self._suffix = self._suffix_of(storage_config)
        self._registrations: list[Registration] = []
        self.registered_pools: dict[str, Any] = {}
        self.mem_pool_host: Any = None

    @staticmethod
    def _suffix_of(config: Any) -> str:
        """Ranks have pages of their own, but where all have the same."""
        suffix = "_" + "-".join((config.model_name or "").split("/"))
        if not config.is_mla_model:
            suffix += f"_{config.tp_rank}_{config.tp_size}"
        if config.pp_size > 1:
            suffix += f"_{config.pp_size}_{config.pp_rank}"
        if getattr(config, "attn_cp_size", 1) > 1:
            suffix += f"_cp{config.attn_cp_rank}_{config.attn_cp_size}"
        return suffix

    def _name(self, key: str, pool: str = _KV) -> str:
        return f"{self._prefix}{key}{'' if pool == _KV else '.' + pool}{self._suffix}"

    def _names(self, keys: Sequence[str], pool: str = _KV) -> list[str]:
        return [self._name(key, pool) for key in keys]

    # Memory

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host
        self.registered_pools[_KV] = mem_pool_host
        self._register(mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        self.registered_pools[_pool_name(host_pool_name)] = host_pool
        self._register(host_pool)

    def _register(self, pool: Any) -> None:
        """Once, for the RDMA device. Without it all works, and each page is registered for itself."""
        buffers = getattr(pool, "kv_buffer", None)
        for tensor in buffers if isinstance(buffers, (list, tuple)) else [] if buffers is None else [buffers]:
            try:
                self._registrations.append(self.store.register(_tensor_memory(tensor)))
            except Error as error:
                _log.warning("the host's pool is not registered: %s", error)

    def _pages(self, pool: Any, count: int, host_indices: Any) -> Iterator[list[Buffer]]:
        """The pieces of each page."""
        addresses, sizes = pool.get_page_buffer_meta(host_indices)
        if len(addresses) % count or len(addresses) != len(sizes):
            raise ValueError(f"{len(addresses)} pieces of {count} pages")
        each = len(addresses) // count
        for at in range(0, len(addresses), each):
            yield list(zip(addresses[at:at + each], sizes[at:at + each]))

    # Pages

    @staticmethod
    def _went_well(pending: Any, length: int | None = None) -> bool:
        """Whether a request did, and brought that length."""
        try:
            result = pending.result()
        except Error as error:
            _log.warning("%s", error)
            return False
        return length is None or result == length

    def _get_pages(self, names: Sequence[str], pool: Any, host_indices: Any) -> list[bool]:
        pages = list(self._pages(pool, len(names), host_indices)) if names else []
        batch = self.store.batch()
        pending = [batch.get_pieces(name, pieces, checksum=self._checksum) for name, pieces in zip(names, pages)]
        batch.run()
        return [self._went_well(each, sum(size for _, size in pieces)) for each, pieces in zip(pending, pages)]

    def _set_pages(self, names: Sequence[str], pool: Any, host_indices: Any) -> list[bool]:
        pages = list(self._pages(pool, len(names), host_indices)) if names else []
        batch = self.store.batch()
        pending = [batch.put_pieces(name, pieces, checksum=self._checksum) for name, pieces in zip(names, pages)]
        batch.run()
        return [self._went_well(each) for each in pending]

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        return self.store.prefix_length(self._names(keys))

    def batch_get_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        return self._get_pages(self._names(keys), self.mem_pool_host, host_indices)

    def batch_set_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        return self._set_pages(self._names(keys), self.mem_pool_host, host_indices)

    def batch_exists_v2(self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        """The longest prefix for which each pool has what its policy asks for."""
        pages = self.batch_exists(keys)
        hits: dict[Any, int] = {_KV: pages} if pages else {}
        usable = pages
        for transfer in pool_transfers or []:
            if not usable:
                break
            there = self.store.exists_many(self._names(keys[:pages], _pool_name(transfer.name)))
            if _pool_name(transfer.hit_policy) == "all_pages":
                boundary = there.index(False) if False in there else pages
            else:
                last = max(1, len(transfer.keys) if transfer.keys else 1)
                boundary = next((n for n in range(pages, 0, -1) if all(there[max(0, n - last):n])), 0)
            if boundary:
                hits[transfer.name] = boundary
            usable = min(usable, boundary)
        return _Result(usable, hits)

    def _transfer(self, transfers: Any, carry_out: Any) -> dict[Any, list[bool]]:
        results: dict[Any, list[bool]] = {}
        for transfer in transfers:
            name, keys = _pool_name(transfer.name), transfer.keys or []
            pool = self.registered_pools[name]
            places = len(keys) * (getattr(pool, "page_size", 1) or 1)
            if transfer.host_indices is None or transfer.host_indices.numel() != places:
                _log.error("%s: the places of %d pages do not fit", name, len(keys))
                results[transfer.name] = [False] * len(keys)
            else:
                results[transfer.name] = carry_out(self._names(keys, name), pool, transfer.host_indices)
        return results

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
        return self._transfer(transfers, self._get_pages)

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
        return self._transfer(transfers, self._set_pages)

    # Single values, which newer versions of SGLang do not use

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        there = self.store.get_exactly([self._name(key)], [_tensor_memory(target_location)])
        return target_location if there == [True] else None

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> Any:
        return [self.get(key, location) for key, location in zip(keys, target_locations)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        whole = value.contiguous() if hasattr(value, "contiguous") else value  # kept while its memory is read
        try:
            self.store.set(self._name(key), _tensor_memory(whole) if hasattr(whole, "data_ptr") else whole)
        except Error as error:
            _log.warning("%s", error)
            return False
        return True

    def batch_set(self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None) -> bool:
        return all([self.set(key, value) for key, value in zip(keys, values)])

    def exists(self, key: str) -> bool:
        return self.store.exists(self._name(key))

    def clear(self) -> None:
        """The pages that begin with the prefix; without one, none: the store may have others."""
        if self._prefix:
            self.store.delete_prefix(self._prefix)

    def get_stats(self) -> Any:
        return None


__all__ = ["Storage"]

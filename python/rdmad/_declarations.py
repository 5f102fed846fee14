"""The calls of librdmad and librdma_lib: made by scripts/python-declarations --write."""
from __future__ import annotations

from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_uint,
                    c_uint8, c_uint32, c_uint64, c_void_p)
from typing import Any


class iovec(Structure):
    _fields_ = [("iov_base", c_void_p), ("iov_len", c_size_t)]


# name: (result, arguments)
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {}

RDMAD_DEFAULT_PORT = 7471
RDMAD_POLL_ALWAYS = 18446744073709551615
KV_TTL_KEEP = 18446744073709551615
RDMAD_CHANNEL_NAME_MAX = 200
RDMAD_CHANNEL_SIZE_MIN = 64
RDMAD_CHANNEL_SIZE_MAX = 4294967296
RDMAD_CHANNEL_FOREVER = 18446744073709551615
RDMAD_PEER_NAME_MAX = 200
RDMAD_PEER_ADDRESSES_MAX = 512
RDMA_NO_NOTICE = 18446744073709551615


class rdmad_options(Structure):
    _fields_ = [("connect_timeout_us", c_uint64),
                ("timeout_us", c_uint64),
                ("poll_us", c_uint64),
                ("no_poll", c_bool),
                ("require_rdma", c_bool),
                ("progress_thread", c_bool),
                ("traffic_class", c_uint8),
                ("credits", c_uint32),
                ("eager_limit", c_uint32),
                ("key_file", c_char_p),
                ("require_encryption", c_bool),
                ("munge", c_bool),
                ("server_user", c_char_p)]


class rdmad_key_info(Structure):
    _fields_ = [("number", c_uint),
                ("name", c_char * (32)),
                ("fingerprint", c_char * (9))]

FUNCTIONS["rdmad_key_info"] = (c_int, [c_char_p, POINTER(rdmad_options), POINTER(rdmad_key_info)])
FUNCTIONS["rdmad_transport_encrypted"] = (c_bool, [c_char_p])
FUNCTIONS["rdmad_error"] = (c_char_p, [])
FUNCTIONS["rdmad_version"] = (c_char_p, [])
FUNCTIONS["kv_open"] = (c_int, [c_char_p, POINTER(c_void_p)])
FUNCTIONS["kv_set"] = (c_int, [c_void_p, c_char_p, c_char_p])
FUNCTIONS["kv_get"] = (c_int, [c_void_p, c_char_p, POINTER(c_void_p)])
FUNCTIONS["kv_release"] = (None, [c_void_p])
FUNCTIONS["kv_close"] = (c_int, [c_void_p])
FUNCTIONS["kv_open_options"] = (c_int, [c_char_p, POINTER(rdmad_options), c_void_p, POINTER(c_void_p)])
FUNCTIONS["rdmad_kv_open"] = (c_int, [c_char_p, POINTER(rdmad_options), c_void_p, POINTER(c_void_p)])
FUNCTIONS["kv_set_bytes"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t])
FUNCTIONS["kv_get_bytes"] = (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t)])
FUNCTIONS["kv_delete"] = (c_int, [c_void_p, c_void_p, c_size_t])
FUNCTIONS["kv_exists"] = (c_int, [c_void_p, c_void_p, c_size_t])

kv_callback = CFUNCTYPE(None, c_void_p, c_int, c_void_p, c_size_t)
FUNCTIONS["kv_submit_set"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, kv_callback, c_void_p])
FUNCTIONS["kv_submit_get"] = (c_int, [c_void_p, c_void_p, c_size_t, kv_callback, c_void_p])
FUNCTIONS["kv_submit_delete"] = (c_int, [c_void_p, c_void_p, c_size_t, kv_callback, c_void_p])
FUNCTIONS["kv_submit_exists"] = (c_int, [c_void_p, c_void_p, c_size_t, kv_callback, c_void_p])
FUNCTIONS["kv_submit_get_into"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, kv_callback, c_void_p])

KV_ALWAYS = 0
KV_IF_ABSENT = 1
KV_IF_PRESENT = 2
KV_IF_VERSION = 3
KV_DURABLE = 64


class kv_put_options(Structure):
    _fields_ = [("condition", c_int),
                ("version", c_uint64),
                ("ttl_us", c_uint64)]


class kv_meta(Structure):
    _fields_ = [("length", c_uint64),
                ("version", c_uint64),
                ("ttl_us", c_uint64)]


class kv_result(Structure):
    _fields_ = [("status", c_int),
                ("value", c_void_p),
                ("value_len", c_size_t),
                ("meta", kv_meta),
                ("number", c_int64),
                ("flags", c_uint32),
                ("type", c_uint8)]


kv_result_callback = CFUNCTYPE(None, c_void_p, POINTER(kv_result))
FUNCTIONS["kv_put"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(kv_put_options),
    POINTER(c_uint64)])
FUNCTIONS["kv_submit_put"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(kv_put_options),
    kv_result_callback, c_void_p])
FUNCTIONS["kv_get_version"] = (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t),
    POINTER(c_uint64)])
FUNCTIONS["kv_submit_get_version"] = (c_int, [c_void_p, c_void_p, c_size_t, kv_result_callback, c_void_p])
FUNCTIONS["kv_stat"] = (c_int, [c_void_p, c_void_p, c_size_t, POINTER(kv_meta)])
FUNCTIONS["kv_submit_stat"] = (c_int, [c_void_p, c_void_p, c_size_t, kv_result_callback, c_void_p])

KV_STRING = 0
KV_HASH = 1
FUNCTIONS["kv_type"] = (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_uint32)])
FUNCTIONS["kv_expire"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64])
FUNCTIONS["kv_submit_expire"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64, kv_result_callback, c_void_p])
FUNCTIONS["kv_delete_if"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64])
FUNCTIONS["kv_submit_delete_if"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64, kv_result_callback, c_void_p])
FUNCTIONS["kv_incr"] = (c_int, [c_void_p, c_void_p, c_size_t, c_int64, POINTER(c_int64), POINTER(c_uint64)])
FUNCTIONS["kv_submit_incr"] = (c_int, [c_void_p, c_void_p, c_size_t, c_int64, kv_result_callback, c_void_p])
FUNCTIONS["kv_count"] = (c_int, [c_void_p, c_void_p, c_size_t, c_int64, c_uint64, POINTER(c_int64),
    POINTER(c_uint64)])
FUNCTIONS["kv_submit_count"] = (c_int, [c_void_p, c_void_p, c_size_t, c_int64, c_uint64, kv_result_callback,
    c_void_p])

KV_THEN_NOTHING = 0
KV_THEN_DELETE = 1
KV_THEN_EXPIRE = 2


class kv_fetch(Structure):
    _fields_ = [("offset", c_uint64),
                ("length", c_uint64),
                ("then", c_int),
                ("ttl_us", c_uint64)]

FUNCTIONS["kv_fetch"] = (c_int, [c_void_p, c_void_p, c_size_t, POINTER(kv_fetch), c_void_p, c_size_t,
    POINTER(c_size_t), POINTER(kv_meta)])
FUNCTIONS["kv_submit_fetch"] = (c_int, [c_void_p, c_void_p, c_size_t, POINTER(kv_fetch), c_void_p, c_size_t,
    kv_result_callback, c_void_p])
FUNCTIONS["kv_get_into"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(c_size_t)])
FUNCTIONS["kv_get_range"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64, c_void_p, c_size_t, POINTER(c_size_t)])
FUNCTIONS["kv_get_delete"] = (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t)])
FUNCTIONS["kv_get_touch"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64, POINTER(c_void_p), POINTER(c_size_t)])
FUNCTIONS["kv_get_set"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(c_void_p),
    POINTER(c_size_t)])
FUNCTIONS["kv_append"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(c_uint64)])
FUNCTIONS["kv_submit_append"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, kv_result_callback,
    c_void_p])
FUNCTIONS["kv_set_range"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64, c_void_p, c_size_t, POINTER(c_uint64)])
FUNCTIONS["kv_submit_set_range"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64, c_void_p, c_size_t,
    kv_result_callback, c_void_p])
FUNCTIONS["kv_putv"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(kv_put_options),
    POINTER(c_uint64)])
FUNCTIONS["kv_submit_putv"] = (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t,
    POINTER(kv_put_options), kv_result_callback, c_void_p])
FUNCTIONS["kv_fetchv"] = (c_int, [c_void_p, c_void_p, c_size_t, POINTER(kv_fetch), c_void_p, c_size_t,
    POINTER(c_size_t), POINTER(kv_meta)])
FUNCTIONS["kv_submit_fetchv"] = (c_int, [c_void_p, c_void_p, c_size_t, POINTER(kv_fetch), c_void_p, c_size_t,
    kv_result_callback, c_void_p])
FUNCTIONS["kv_checksum"] = (c_uint64, [c_void_p, c_size_t])
FUNCTIONS["kv_expect_length"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64])

kv_scan_callback = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, POINTER(kv_meta))
FUNCTIONS["kv_scan"] = (c_int, [c_void_p, POINTER(c_uint64), c_void_p, c_size_t, c_uint, kv_scan_callback, c_void_p])
FUNCTIONS["kv_each"] = (c_int, [c_void_p, c_void_p, c_size_t, kv_scan_callback, c_void_p])
FUNCTIONS["kv_delete_all"] = (c_int, [c_void_p, POINTER(c_uint64)])
FUNCTIONS["kv_delete_prefix"] = (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_uint64)])


class kv_info(Structure):
    _fields_ = [("key_max", c_uint64),
                ("eager_max", c_uint64),
                ("value_max", c_uint64),
                ("keys", c_uint64),
                ("bytes_used", c_uint64),
                ("bytes_total", c_uint64),
                ("hits", c_uint64),
                ("misses", c_uint64),
                ("evictions", c_uint64),
                ("expired", c_uint64)]

FUNCTIONS["kv_info"] = (c_int, [c_void_p, POINTER(kv_info)])


class kv_item(Structure):
    _fields_ = [("key", c_void_p),
                ("key_len", c_size_t),
                ("value", c_void_p),
                ("value_len", c_size_t),
                ("status", c_int)]

FUNCTIONS["kv_mset"] = (c_int, [c_void_p, POINTER(kv_item), c_size_t, POINTER(kv_put_options)])

kv_mget_callback = CFUNCTYPE(None, c_void_p, c_size_t, c_int, c_void_p, c_size_t)
FUNCTIONS["kv_mget"] = (c_int, [c_void_p, POINTER(kv_item), c_size_t, kv_mget_callback, c_void_p])


class kv_place(Structure):
    _fields_ = [("key", c_void_p),
                ("key_len", c_size_t),
                ("buffer", c_void_p),
                ("size", c_size_t),
                ("value_len", c_size_t),
                ("status", c_int)]

FUNCTIONS["kv_mget_into"] = (c_int, [c_void_p, POINTER(kv_place), c_size_t])
FUNCTIONS["kv_mexists"] = (c_int64, [c_void_p, POINTER(kv_item), c_size_t, c_bool])
FUNCTIONS["kv_mlease"] = (c_int64, [c_void_p, POINTER(kv_item), c_size_t, c_uint64, POINTER(c_size_t)])
FUNCTIONS["kv_mrelease"] = (c_int, [c_void_p, POINTER(kv_item), c_size_t])
FUNCTIONS["kv_submit_lease"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64, kv_result_callback, c_void_p])
FUNCTIONS["kv_submit_mset"] = (c_int64, [c_void_p, POINTER(kv_item), c_size_t, POINTER(kv_put_options),
    kv_result_callback, c_void_p])
FUNCTIONS["kv_submit_mget_into"] = (c_int64, [c_void_p, POINTER(kv_place), c_size_t, kv_result_callback, c_void_p])
FUNCTIONS["kv_submit_mexists"] = (c_int64, [c_void_p, POINTER(kv_item), c_size_t, kv_result_callback, c_void_p])

KV_OP_GET = 0
KV_OP_SET = 1
KV_OP_DELETE = 2
KV_OP_STAT = 3
KV_OP_EXPIRE = 4
KV_OP_COUNT = 5
KV_OP_APPEND = 6
KV_OP_SET_RANGE = 7
KV_OP_LEASE = 8


class kv_request(Structure):
    _fields_ = [("tag", c_uint64),
                ("op", c_int),
                ("condition", c_int),
                ("key", c_void_p),
                ("key_len", c_size_t),
                ("value", c_void_p),
                ("value_len", c_size_t),
                ("pieces", c_size_t),
                ("version", c_uint64),
                ("ttl_us", c_uint64),
                ("offset", c_uint64),
                ("length", c_uint64),
                ("delta", c_int64),
                ("then", c_int)]


class kv_completion(Structure):
    _fields_ = [("tag", c_uint64),
                ("status", c_int),
                ("flags", c_uint32),
                ("value", c_void_p),
                ("length", c_uint64),
                ("meta", kv_meta),
                ("number", c_int64),
                ("type", c_uint8)]

FUNCTIONS["kv_submit"] = (c_int64, [c_void_p, POINTER(kv_request), c_size_t])
FUNCTIONS["kv_done"] = (c_int64, [c_void_p, POINTER(kv_completion), c_size_t, c_uint64])
FUNCTIONS["kv_cancel_tag"] = (c_int, [c_void_p, c_uint64])

KV_EVENT_STORED = 1
KV_EVENT_DELETED = 2
KV_EVENT_EXPIRED = 4
KV_EVENT_EVICTED = 8
KV_EVENT_TTL = 16
KV_EVENT_ALL = 31
KV_EVENT_FLUSHED = 32
KV_EVENT_BEGAN = 64
KV_EVENT_MISSED = 128


class kv_event(Structure):
    _fields_ = [("kind", c_int),
                ("fresh", c_bool),
                ("key", c_void_p),
                ("key_len", c_size_t),
                ("missed", c_uint64)]

FUNCTIONS["kv_watch"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint])
FUNCTIONS["kv_events"] = (c_int64, [c_void_p, POINTER(kv_event), c_size_t, c_uint64])
FUNCTIONS["kv_buffer_lend"] = (c_int, [c_void_p, c_size_t, POINTER(c_void_p)])
FUNCTIONS["kv_buffer_register"] = (c_int, [c_void_p, c_void_p, c_size_t])
FUNCTIONS["kv_buffer_register_dmabuf"] = (c_int, [c_void_p, c_int, c_uint64, c_size_t, POINTER(c_void_p)])
FUNCTIONS["kv_buffer_unregister"] = (c_int, [c_void_p, c_void_p])
FUNCTIONS["kv_reopen"] = (c_int, [c_void_p])
FUNCTIONS["kv_keep_connected"] = (c_int, [c_void_p, c_uint64])
FUNCTIONS["kv_request_timeout"] = (c_int, [c_void_p, c_uint64])
FUNCTIONS["kv_cancel"] = (c_int, [c_void_p, c_void_p])
FUNCTIONS["kv_flush"] = (c_int, [c_void_p])
FUNCTIONS["kv_progress"] = (c_int, [c_void_p, c_uint64])
FUNCTIONS["kv_wait"] = (c_int, [c_void_p])
FUNCTIONS["kv_outstanding"] = (c_size_t, [c_void_p])
FUNCTIONS["kv_fd"] = (c_int, [c_void_p])
FUNCTIONS["kv_arm"] = (c_int, [c_void_p])
FUNCTIONS["kv_cluster_table"] = (c_int, [c_void_p, POINTER(c_uint64), POINTER(c_void_p)])

KV_CLUSTER_MISS = 1
FUNCTIONS["kv_cluster_flags"] = (c_int, [c_void_p, c_uint])
FUNCTIONS["kv_status_text"] = (c_char_p, [c_int])
FUNCTIONS["kv_status_answered"] = (c_int, [c_int])
FUNCTIONS["kv_transport"] = (c_char_p, [c_void_p])
FUNCTIONS["kv_eager_max"] = (c_uint64, [c_void_p])
FUNCTIONS["kv_value_max"] = (c_uint64, [c_void_p])


class rdmad_channel_options(Structure):
    _fields_ = [("common", rdmad_options),
                ("device", c_char_p),
                ("posix_memory", c_bool)]

FUNCTIONS["rdmad_channel_listen"] = (c_int, [c_char_p, c_size_t, POINTER(rdmad_channel_options), POINTER(c_void_p)])
FUNCTIONS["rdmad_channel_accept"] = (c_int, [c_void_p, c_uint64, POINTER(c_void_p)])
FUNCTIONS["rdmad_channel_listener_fd"] = (c_int, [c_void_p])
FUNCTIONS["rdmad_channel_listener_url"] = (c_char_p, [c_void_p])
FUNCTIONS["rdmad_channel_listener_close"] = (None, [c_void_p])
FUNCTIONS["rdmad_channel_open"] = (c_int, [c_char_p, c_size_t, POINTER(rdmad_channel_options), POINTER(c_void_p)])
FUNCTIONS["rdmad_channel_close"] = (c_int, [c_void_p])
FUNCTIONS["rdmad_channel_put"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64])
FUNCTIONS["rdmad_channel_putv"] = (c_int, [c_void_p, c_void_p, c_int, c_uint64])
FUNCTIONS["rdmad_channel_try_put"] = (c_int, [c_void_p, c_void_p, c_size_t])
FUNCTIONS["rdmad_channel_flush"] = (c_int, [c_void_p, c_uint64])
FUNCTIONS["rdmad_channel_room"] = (c_size_t, [c_void_p])
FUNCTIONS["rdmad_channel_reserve"] = (c_int, [c_void_p, c_size_t, c_uint64, POINTER(c_void_p)])
FUNCTIONS["rdmad_channel_commit"] = (c_int, [c_void_p, c_size_t])
FUNCTIONS["rdmad_channel_get"] = (c_int, [c_void_p, c_void_p, c_size_t, c_uint64])
FUNCTIONS["rdmad_channel_getv"] = (c_int, [c_void_p, c_void_p, c_int, c_uint64])
FUNCTIONS["rdmad_channel_try_get"] = (c_ssize_t, [c_void_p, c_void_p, c_size_t])
FUNCTIONS["rdmad_channel_try_get_all"] = (c_int, [c_void_p, c_void_p, c_size_t])
FUNCTIONS["rdmad_channel_peek"] = (c_ssize_t, [c_void_p, c_void_p, c_size_t])
FUNCTIONS["rdmad_channel_available"] = (c_size_t, [c_void_p])
FUNCTIONS["rdmad_channel_view"] = (c_int, [c_void_p, c_size_t, c_uint64, POINTER(c_void_p), POINTER(c_size_t)])
FUNCTIONS["rdmad_channel_consume"] = (c_int, [c_void_p, c_size_t])
FUNCTIONS["rdmad_channel_fd"] = (c_int, [c_void_p])
FUNCTIONS["rdmad_channel_arm"] = (c_int, [c_void_p])
FUNCTIONS["rdmad_channel_progress"] = (c_int, [c_void_p])


class rdmad_channel_info(Structure):
    _fields_ = [("capacity", c_uint64),
                ("bytes_put", c_uint64),
                ("bytes_got", c_uint64),
                ("flushes", c_uint64),
                ("sleeps", c_uint64),
                ("transport", c_char * (8)),
                ("peer", c_char * (128)),
                ("relayed", c_bool),
                ("memory", c_bool),
                ("sockets", c_bool)]

FUNCTIONS["rdmad_channel_info"] = (None, [c_void_p, POINTER(rdmad_channel_info)])


class rdmad_channel_entry(Structure):
    _fields_ = [("name", c_char * (200 + 1)),
                ("capacity", c_uint64),
                ("clients", c_uint64)]


rdmad_channel_each = CFUNCTYPE(c_int, c_void_p, POINTER(rdmad_channel_entry))
FUNCTIONS["rdmad_channel_list"] = (c_int, [c_char_p, POINTER(rdmad_options), rdmad_channel_each, c_void_p, c_void_p])


class rdmad_peer_entry(Structure):
    _fields_ = [("name", c_char * (200 + 1)),
                ("number", c_uint32),
                ("size", c_uint32),
                ("here", c_uint32),
                ("rank", c_int),
                ("addresses", c_char * (512 + 1))]


rdmad_peer_each = CFUNCTYPE(c_int, c_void_p, POINTER(rdmad_peer_entry))
FUNCTIONS["rdmad_peer_list"] = (c_int, [c_char_p, POINTER(rdmad_options), rdmad_peer_each, c_void_p, c_void_p])


class rdma_options(Structure):
    _fields_ = [("max_peers", c_uint32),
                ("max_wr", c_uint32),
                ("cq_depth", c_uint32),
                ("rate_limit_mib", c_uint32),
                ("buf_size", c_size_t),
                ("timeout_ms", c_uint64),
                ("connect_timeout_ms", c_uint64),
                ("heartbeat_ms", c_uint64),
                ("reconnect_ms", c_uint64),
                ("poll_us", c_uint64),
                ("no_poll", c_bool),
                ("require_rdma", c_bool),
                ("progress_thread", c_bool),
                ("traffic_class", c_uint8),
                ("device", c_char_p),
                ("key_file", c_char_p),
                ("require_encryption", c_bool),
                ("munge", c_bool),
                ("server_user", c_char_p)]

FUNCTIONS["rdma_init"] = (c_void_p, [c_char_p, c_int, c_size_t, c_bool])
FUNCTIONS["rdma_init_options"] = (c_void_p, [c_char_p, c_int, c_bool, POINTER(rdma_options)])
FUNCTIONS["rdma_cleanup"] = (None, [c_void_p])
FUNCTIONS["rdma_port"] = (c_int, [c_void_p])
FUNCTIONS["rdma_connect_peer"] = (c_int, [c_void_p, c_char_p, c_int])
FUNCTIONS["rdma_accept_peer"] = (c_int, [c_void_p])
FUNCTIONS["rdma_disconnect_peer"] = (c_int, [c_void_p, c_int])
FUNCTIONS["rdma_transport"] = (c_char_p, [c_void_p, c_int])
FUNCTIONS["rdma_peers"] = (c_int, [c_void_p])

rdma_lost_fn = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
FUNCTIONS["rdma_on_lost"] = (None, [c_void_p, rdma_lost_fn, c_void_p])
FUNCTIONS["rdma_send"] = (c_int, [c_void_p, c_int, c_void_p, c_size_t])
FUNCTIONS["rdma_recv"] = (c_int, [c_void_p, c_int, c_void_p, c_size_t])
FUNCTIONS["rdma_probe"] = (c_int64, [c_void_p, c_int, c_uint64])
FUNCTIONS["rdma_broadcast"] = (c_int, [c_void_p, c_void_p, c_size_t])
FUNCTIONS["rdma_sequential_alltoall"] = (c_int, [c_void_p, c_void_p, c_void_p, c_size_t])

RDMA_NORMAL = 0
RDMA_URGENT = 1
RDMA_BULK = 2
FUNCTIONS["rdma_send_class"] = (c_int, [c_void_p, c_int])
FUNCTIONS["rdma_rate_limit"] = (c_int, [c_void_p, c_int, c_uint32])
FUNCTIONS["rdma_register"] = (c_int, [c_void_p, c_void_p, c_size_t])
FUNCTIONS["rdma_unregister"] = (c_int, [c_void_p, c_void_p])
FUNCTIONS["rdma_isend"] = (c_void_p, [c_void_p, c_int, c_void_p, c_size_t])
FUNCTIONS["rdma_irecv"] = (c_void_p, [c_void_p, c_int, c_void_p, c_size_t])
FUNCTIONS["rdma_test"] = (c_int, [c_void_p, POINTER(c_int64)])
FUNCTIONS["rdma_wait"] = (c_int, [c_void_p, c_uint64, POINTER(c_int64)])
FUNCTIONS["rdma_wait_any"] = (c_int, [POINTER(c_void_p), c_int, c_uint64, POINTER(c_int64)])
FUNCTIONS["rdma_wait_all"] = (c_int, [POINTER(c_void_p), c_int, c_uint64, POINTER(c_int64)])
FUNCTIONS["rdma_cancel"] = (c_int, [c_void_p])
FUNCTIONS["rdma_fd"] = (c_int, [c_void_p])
FUNCTIONS["rdma_progress"] = (c_int, [c_void_p])
FUNCTIONS["rdma_progress_timeout"] = (c_int, [c_void_p])

RDMA_WINDOW_READ = 1
RDMA_WINDOW_WRITE = 2
RDMA_WINDOW_ATOMIC = 4
FUNCTIONS["rdma_window_create"] = (c_void_p, [c_void_p, c_void_p, c_size_t, c_uint])
FUNCTIONS["rdma_window_addr"] = (c_void_p, [c_void_p])
FUNCTIONS["rdma_window_share"] = (c_int, [c_void_p, c_int])
FUNCTIONS["rdma_window_close"] = (None, [c_void_p])
FUNCTIONS["rdma_window_open"] = (c_void_p, [c_void_p, c_int, c_uint64])
FUNCTIONS["rdma_remote_size"] = (c_size_t, [c_void_p])
FUNCTIONS["rdma_remote_rights"] = (c_uint, [c_void_p])
FUNCTIONS["rdma_remote_close"] = (None, [c_void_p])
FUNCTIONS["rdma_write"] = (c_int, [c_void_p, c_uint64, c_void_p, c_size_t, c_uint64])
FUNCTIONS["rdma_read"] = (c_int, [c_void_p, c_uint64, c_void_p, c_size_t])
FUNCTIONS["rdma_iwrite"] = (c_void_p, [c_void_p, c_uint64, c_void_p, c_size_t, c_uint64])
FUNCTIONS["rdma_iread"] = (c_void_p, [c_void_p, c_uint64, c_void_p, c_size_t])
FUNCTIONS["rdma_fetch_add"] = (c_int, [c_void_p, c_uint64, c_uint64, POINTER(c_uint64)])
FUNCTIONS["rdma_compare_swap"] = (c_int, [c_void_p, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)])
FUNCTIONS["rdma_remote_atomics"] = (c_char_p, [c_void_p])
FUNCTIONS["rdma_notice"] = (c_int, [c_void_p, POINTER(c_uint64), POINTER(c_int), c_uint64])
FUNCTIONS["rdma_group_create"] = (c_void_p, [c_void_p])
FUNCTIONS["rdma_group_meet"] = (c_void_p, [c_void_p, c_char_p, c_char_p, c_int, c_int])
FUNCTIONS["rdma_group_run"] = (c_void_p, [c_void_p])
FUNCTIONS["rdma_launcher"] = (c_char_p, [])
FUNCTIONS["rdma_group_subset"] = (c_void_p, [c_void_p, POINTER(c_int), c_int])
FUNCTIONS["rdma_group_shrink"] = (c_void_p, [c_void_p])
FUNCTIONS["rdma_group_free"] = (None, [c_void_p])
FUNCTIONS["rdma_group_rank"] = (c_int, [c_void_p])
FUNCTIONS["rdma_group_size"] = (c_int, [c_void_p])
FUNCTIONS["rdma_group_peer"] = (c_int, [c_void_p, c_int])
FUNCTIONS["rdma_group_lost"] = (c_int, [c_void_p, c_int])

RDMA_BYTE = 0
RDMA_INT32 = 1
RDMA_INT64 = 2
RDMA_UINT64 = 3
RDMA_FLOAT = 4
RDMA_DOUBLE = 5

RDMA_SUM = 0
RDMA_PRODUCT = 1
RDMA_MIN = 2
RDMA_MAX = 3
RDMA_AND = 4
RDMA_OR = 5
RDMA_XOR = 6
FUNCTIONS["rdma_barrier"] = (c_int, [c_void_p])
FUNCTIONS["rdma_bcast"] = (c_int, [c_void_p, c_void_p, c_size_t, c_int])
FUNCTIONS["rdma_gather"] = (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int])
FUNCTIONS["rdma_scatter"] = (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int])
FUNCTIONS["rdma_allgather"] = (c_int, [c_void_p, c_void_p, c_void_p, c_size_t])
FUNCTIONS["rdma_reduce"] = (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int])
FUNCTIONS["rdma_allreduce"] = (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int])
FUNCTIONS["rdma_alltoall"] = (c_int, [c_void_p, c_void_p, c_void_p, c_size_t])
FUNCTIONS["rdma_alltoallv"] = (c_int, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_void_p,
    POINTER(c_size_t), POINTER(c_size_t)])
FUNCTIONS["rdma_ibarrier"] = (c_void_p, [c_void_p])
FUNCTIONS["rdma_ibcast"] = (c_void_p, [c_void_p, c_void_p, c_size_t, c_int])
FUNCTIONS["rdma_igather"] = (c_void_p, [c_void_p, c_void_p, c_void_p, c_size_t, c_int])
FUNCTIONS["rdma_iscatter"] = (c_void_p, [c_void_p, c_void_p, c_void_p, c_size_t, c_int])
FUNCTIONS["rdma_iallgather"] = (c_void_p, [c_void_p, c_void_p, c_void_p, c_size_t])
FUNCTIONS["rdma_ireduce"] = (c_void_p, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int])
FUNCTIONS["rdma_iallreduce"] = (c_void_p, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int])
FUNCTIONS["rdma_ialltoall"] = (c_void_p, [c_void_p, c_void_p, c_void_p, c_size_t])
FUNCTIONS["rdma_ialltoallv"] = (c_void_p, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_void_p,
    POINTER(c_size_t), POINTER(c_size_t)])
FUNCTIONS["rdma_group_algorithm"] = (c_int, [c_void_p, c_char_p, c_char_p])
FUNCTIONS["rdma_get_error"] = (c_char_p, [])
FUNCTIONS["rdma_get_errno"] = (c_int, [])


STRUCTURES = [rdmad_options, rdmad_key_info, kv_put_options, kv_meta, kv_result, kv_fetch, kv_info, kv_item, kv_place, kv_request, kv_completion, kv_event, rdmad_channel_options, rdmad_channel_info, rdmad_channel_entry, rdmad_peer_entry, rdma_options]

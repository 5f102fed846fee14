/* table.c: the metrics, each once. A service adds its own by rows here; what they count is in its status. */
#include "daemon/metrics/metrics.h"

/* clang-format off */
#define ROW(type, scale, name, labels, help, ...)                                                                      \
	{                                                                                                              \
		name, type, labels, help, scale, (const struct metric_source[])                                        \
		{                                                                                                      \
			__VA_ARGS__,                                                                                   \
			{                                                                                              \
				NULL, NULL                                                                             \
			}                                                                                              \
		}                                                                                                      \
	}
#define COUNTER(...) ROW(METRIC_COUNTER, 0, __VA_ARGS__)
#define COUNTER_NS(...) ROW(METRIC_COUNTER, 1e-9, __VA_ARGS__)
#define GAUGE(...) ROW(METRIC_GAUGE, 0, __VA_ARGS__)
#define GAUGE_NS(...) ROW(METRIC_GAUGE, 1e-9, __VA_ARGS__)
#define HISTOGRAM(...) ROW(METRIC_HISTOGRAM, 1e-9, __VA_ARGS__)
#define ONE(path) {"", path}

/* Name, labels, meaning, and where the numbers are. */
const struct metric metrics[] = {
	/* The process. */
	GAUGE("rdmad_build_info", "version,rdma", "Version, and whether RDMA is required or optional; always 1.",
	      ONE("build.*.*")),
	GAUGE("process_start_time_seconds", "", "Start of the process, since 1970.", ONE("process.start_seconds")),
	COUNTER_NS("process_cpu_seconds_total", "", "Processor time of the process.", ONE("process.processor_ns")),
	GAUGE("process_resident_memory_bytes", "", "Memory of the process that is in memory.",
	      ONE("memory.resident_bytes")),
	GAUGE("process_open_fds", "", "Descriptors in use.", ONE("resources.descriptors")),
	GAUGE("process_max_fds", "", "Most descriptors.", ONE("resources.descriptors_max")),
	GAUGE("rdmad_heap_bytes", "", "Memory that malloc has handed out.", ONE("memory.heap_bytes")),
	GAUGE("rdmad_state", "state", "1 for the state that holds.", ONE("states.*")),
	GAUGE("rdmad_config_last_reload_successful", "",
	      "Whether the last reload of the configuration took effect; 1 before the first.",
	      ONE("reload.successful")),
	GAUGE("rdmad_config_last_reload_success_timestamp_seconds", "",
	      "When the configuration that holds was read, since 1970.", ONE("reload.success_seconds")),
	GAUGE("rdmad_workers", "", "Threads that serve connections.", ONE("workers")),
	COUNTER_NS("rdmad_worker_busy_seconds_total", "worker",
	      "Time of turns in which the worker found something to do; polling is none.", ONE("busy.*")),
	HISTOGRAM("rdmad_worker_turn_duration_seconds", "", "How long each of these turns took: others wait meanwhile.",
	      ONE("turns")),

	/* Transports and devices. */
	GAUGE("rdmad_transport_available", "transport",
	      "1: the daemon listens by this transport; 0: it was asked to, and the machine lacks it.",
	      ONE("transports.*")),
	GAUGE("rdmad_rdma_port_up", "device,port", "Whether the port of the RDMA device is active.",
	      ONE("ports.*.*.up")),
	COUNTER("rdmad_rdma_port_retries_total", "device,port,kind",
	      "What the port counts of packets that were lost, late or marked.", ONE("ports.*.*.retries.*")),
	GAUGE("rdmad_registered_memory_bytes", "", "Memory that devices have pinned.", ONE("memory.pinned_bytes")),
	GAUGE("rdmad_memlock_limit_bytes", "",
	      "Most memory that may be pinned or locked; absent where there is no limit.",
	      ONE("process.memlock_bytes")),
	GAUGE("rdmad_buffer_bytes", "kind", "Buffers for messages: shared, or of one connection.",
	      {"shared", "memory.buffer_bytes"}, {"own", "memory.own_buffer_bytes"}),

	/* Connections. */
	GAUGE("rdmad_connections", "transport,service", "Connections.", ONE("connections_of.*.*")),
	GAUGE("rdmad_connections_limit", "", "Most connections.", ONE("max_connections")),
	GAUGE("rdmad_connection_sources", "", "Addresses and users that connections are counted of.",
	      ONE("resources.sources")),
	COUNTER("rdmad_connections_accepted_total", "", "Connections that were accepted.", ONE("counters.accepted")),
	COUNTER("rdmad_connections_encrypted_total", "", "Connections that the kernel encrypts.",
	      ONE("counters.encrypted")),
	COUNTER("rdmad_connections_refused_total", "reason", "Connections that were refused.", ONE("refused_of.*")),
	COUNTER("rdmad_connections_closed_total", "", "Connections that ended.", ONE("counters.closed")),
	COUNTER("rdmad_connections_cut_off_total", "reason", "Connections that the daemon ended.",
	      {"stalled", "counters.stalled"}, {"silent", "counters.silent"}, {"violation", "counters.violations"},
	      {"gave_way", "counters.gave_way"}, {"parked", "counters.overparked"}, {"unproved", "counters.unproved"},
	      {"revoked", "counters.revoked"}),
	COUNTER("rdmad_received_bytes_total", "", "Bytes of messages that came.", ONE("counters.in_bytes")),
	COUNTER("rdmad_sent_bytes_total", "", "Bytes of messages that left.", ONE("counters.out_bytes")),
	COUNTER("rdmad_messages_total", "direction", "Messages of RDMA's kind.",
	      {"in", "counters.messages_in"}, {"out", "counters.messages_out"}),
	COUNTER("rdmad_records_total", "direction", "Requests and answers, by whichever protocol.",
	      {"in", "counters.records_in"}, {"out", "counters.records_out"}),
	COUNTER("rdmad_stream_reads_total", "", "Reads from connections of Redis's and memcached's clients.",
	      ONE("counters.stream_reads")),
	COUNTER("rdmad_stream_writes_total", "", "Writes to connections of Redis's and memcached's clients.",
	      ONE("counters.stream_writes")),
	GAUGE("rdmad_parked_bytes", "", "Requests that wait, because their client takes no answers.",
	      ONE("memory.parked_bytes")),
	COUNTER("rdmad_yields_total", "", "Turns of a client that ended before its requests did.",
	      ONE("counters.yields")),
	COUNTER("rdmad_paced_total", "", "Messages that waited, as their client was over its limit.",
	      ONE("counters.paced")),

	/* Requests. */
	COUNTER("rdmad_requests_total", "service,operation", "Requests that were answered.",
	      {"ping,ping", "counters.pings"}, {"kv,get", "counters.kv_gets"}, {"kv,set", "counters.kv_sets"},
	      {"kv,delete", "counters.kv_deletes"}, {"kv,exists", "counters.kv_exists"},
	      {"kv,stat", "counters.kv_stats"}, {"kv,expire", "counters.kv_expires"}, {"kv,incr", "counters.kv_incrs"},
	      {"kv,edit", "counters.kv_edits"}, {"kv,scan", "counters.kv_scans"}, {"kv,flush", "counters.kv_flushes"},
	      {"kv,info", "counters.kv_infos"}, {"gpu,quantize", "counters.gpu_quantizes"},
	      {"gpu,echo", "counters.gpu_echoes"}, {"gpu,queue", "counters.gpu_queue_jobs"},
	      {"channel,listen", "counters.channel_listens"}, {"channel,open", "counters.channel_opens"},
	      {"peer,join", "counters.peer_joins"}, {"memcached,get", "counters.memcached_cmd_get"},
	      {"memcached,set", "counters.memcached_cmd_set"}, {"memcached,touch", "counters.memcached_cmd_touch"},
	      {"memcached,flush", "counters.memcached_cmd_flush"}, {"memcached,meta", "counters.memcached_cmd_meta"}),
	COUNTER("rdmad_request_errors_total", "service,reason",
	      "Requests that were answered with an error. A missing key is none.",
	      {"kv,error", "counters.kv_errors"}, {"kv,denied", "counters.kv_denied"},
	      {"kv,quota", "counters.kv_over_quota"}, {"kv,elsewhere", "counters.kv_elsewhere"},
	      {"gpu,error", "counters.gpu_errors"},
	      {"gpu,refused", "counters.gpu_refused"}, {"channel,refused", "counters.channel_refused"},
	      {"peer,refused", "counters.peer_refused"}, {"memcached,too_large", "counters.memcached_store_too_large"},
	      {"memcached,full", "counters.memcached_store_no_memory"}),
	HISTOGRAM("rdmad_request_duration_seconds", "service,class",
	      "How long requests took in the daemon, until their answer had left.", ONE("durations.*.*")),
	COUNTER("rdmad_authentication_failures_total", "reason",
	      "Clients without the key or the password that they need.",
	      {"unknown_key", "refused_of.key"}, {"unproved", "counters.unproved"},
	      {"memcached_password", "counters.memcached_auth_errors"}),

	/* Keys and values. */
	COUNTER("rdmad_transfers_total", "direction,way",
	      "Large values that came and went: moved by RDMA, or pushed behind their message.",
	      {"in,rdma", "counters.kv_reads"}, {"in,pushed", "counters.kv_pulls"}, {"out,rdma", "counters.kv_writes"},
	      {"out,pushed", "counters.kv_pushes"}),
	HISTOGRAM("rdmad_transfer_duration_seconds", "service,direction",
	      "How long large values took: from the request until they were here; from when they left until the client "
	      "had them.", ONE("moves.*.*")),
	GAUGE("rdmad_transfer_memory_bytes", "", "Memory of large values under way.", ONE("store.transfer_bytes")),
	COUNTER("rdmad_kv_waits_total", "for",
	      "Requests that waited for memory of large values, and answers that waited for the log.",
	      {"memory", "counters.kv_waits"}, {"log", "counters.kv_held"}),
	GAUGE("rdmad_kv_watches", "", "Connections that are told of changes of keys.", ONE("store.watches")),
	COUNTER("rdmad_kv_events_total", "result",
	      "Changes of keys that were told, and how many were missed, at most.",
	      {"told", "counters.kv_events"}, {"missed", "counters.kv_events_missed"}),
	GAUGE("rdmad_kv_items", "", "Keys.", ONE("store.items")),
	GAUGE("rdmad_kv_memory_used_bytes", "", "Memory of keys and values, with headers and rounding.",
	      ONE("store.used_bytes")),
	GAUGE("rdmad_kv_memory_held_bytes", "", "Pages that hold any of it, with what is free beside it.",
	      ONE("store.held_bytes")),
	GAUGE("rdmad_kv_memory_limit_bytes", "", "Memory for keys and values.", ONE("store.total_bytes")),
	GAUGE("rdmad_kv_pins", "", "Values that a transfer uses or is to fill.", ONE("store.pins")),
	COUNTER("rdmad_kv_lookups_total", "result", "Lookups of a key, by whichever protocol.",
	      {"hit", "store.hits"}, {"miss", "store.misses"}),
	COUNTER("rdmad_kv_stored_total", "", "Values that were stored.", ONE("store.sets")),
	COUNTER("rdmad_kv_deleted_total", "", "Keys that were deleted.", ONE("store.deletes")),
	COUNTER("rdmad_kv_expired_total", "", "Keys whose time to live was over.", ONE("store.expired")),
	COUNTER("rdmad_kv_evicted_total", "", "Keys that went to make room for others.", ONE("store.evictions")),
	COUNTER("rdmad_kv_moved_total", "", "Values that were moved in memory to make room.", ONE("store.moves")),
	COUNTER("rdmad_kv_refused_total", "reason", "Writes that were refused: there was no memory.",
	      {"full", "store.out_of_memory"}),
	GAUGE("rdmad_cluster_epoch", "", "Epoch of the cluster's table that is served; absent where there is none.",
	      ONE("cluster.epoch")),
	GAUGE("rdmad_cluster_slots", "state",
	      "Slots: this server's by the table, slots that wait for a sweep, and those with keys of before they "
	      "were given away.",
	      {"own", "cluster.slots"}, {"waiting", "cluster.waiting_slots"}, {"sweeping", "cluster.sweeping_slots"}),
	GAUGE("rdmad_client_used_bytes", "client", "What clients have stored whose number of bytes is limited.",
	      ONE("stored_bytes.*")),

	/* The log. */
	GAUGE("rdmad_log_state", "state", "1 for the state of the log on disk that holds.", ONE("log_states.*")),
	COUNTER("rdmad_log_syncs_total", "", "Syncs of the log's file.", ONE("log.groups")),
	COUNTER("rdmad_log_changes_total", "", "Changes that the log took.", ONE("log.changes")),
	COUNTER("rdmad_log_written_bytes_total", "", "Bytes that were written to the log.", ONE("log.written_bytes")),
	GAUGE("rdmad_log_unsynced_changes", "", "Changes that are not on disk yet.", ONE("log.lag")),
	GAUGE("rdmad_log_held_answers", "", "Answers that wait for the log.", ONE("log.held_answers")),
	GAUGE("rdmad_log_size_bytes", "", "The log since its last checkpoint.", ONE("log.log_bytes")),
	GAUGE_NS("rdmad_log_last_sync_seconds", "", "How long the last sync took.", ONE("log.last_sync_ns")),
	COUNTER("rdmad_log_checkpoints_total", "", "Checkpoints that were completed.", ONE("log.checkpoints")),
	COUNTER("rdmad_log_checkpoint_written_bytes_total", "", "Bytes that were written to checkpoints.",
	      ONE("log.checkpoint_bytes")),
	GAUGE_NS("rdmad_log_checkpoint_running_seconds", "",
	      "How long the checkpoint that is under way has taken; 0: there is none.",
	      ONE("log.checkpoint_under_way_ns")),

	/* The other services. */
	GAUGE("rdmad_gpu_sessions", "", "Sessions of the gpu service.", ONE("gpu.sessions")),
	GAUGE("rdmad_gpu_sessions_limit", "", "Most of them.", ONE("gpu.sessions_max")),
	COUNTER("rdmad_gpu_sessions_opened_total", "", "Sessions that were opened.", ONE("counters.gpu_sessions")),
	COUNTER("rdmad_gpu_sessions_evicted_total", "", "Idle sessions whose place another client wanted.",
	      ONE("counters.gpu_evicted")),
	COUNTER("rdmad_gpu_job_bytes_total", "direction", "Inputs and outputs of jobs.",
	      {"in", "counters.gpu_in_bytes"}, {"out", "counters.gpu_out_bytes"}),
	GAUGE("rdmad_channel_names", "", "Names that programs listen on.", ONE("channel.names")),
	GAUGE("rdmad_channel_joined", "", "Channels through the daemon.", ONE("channel.joined")),
	COUNTER("rdmad_channel_relayed_bytes_total", "", "Bytes of channels through the daemon.",
	      ONE("counters.channel_bytes")),
	GAUGE("rdmad_peer_groups", "", "Groups of programs.", ONE("peer.groups")),
	GAUGE("rdmad_peer_members", "", "Programs in them.", ONE("peer.members")),
	COUNTER("rdmad_memcached_bytes_total", "direction", "Bytes of memcached's clients.",
	      {"in", "counters.memcached_bytes_read"}, {"out", "counters.memcached_bytes_written"}),
};
/* clang-format on */

const size_t metrics_count = ARRAY_SIZE(metrics);

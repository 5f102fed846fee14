/* settings.c: the table of settings, their defaults, and the sample that is printed from it. */
#include "daemon/settings.h"

#define AT(member) offsetof(struct config, member)
#define NUMBER_MAX INT32_MAX /* what libconfig reads without damage */

static const char *const transports[] = {"rdma", "tcp", "unix", NULL};
static const char *const evictions[] = {
	[STORE_EVICT_NONE] = "none", [STORE_EVICT_S3_FIFO] = "s3-fifo", [STORE_EVICT_S3_FIFO + 1] = NULL};
static const char *const backends[] = {
	[CONFIG_GPU_AUTO] = "auto", [CONFIG_GPU_CPU] = "cpu", [CONFIG_GPU_CUDA] = "cuda", [CONFIG_GPU_CUDA + 1] = NULL};
static const char *const levels[] = {[LOG_LEVEL_ERROR] = "error",
				     [LOG_LEVEL_WARN] = "warn",
				     [LOG_LEVEL_INFO] = "info",
				     [LOG_LEVEL_DEBUG] = "debug",
				     [LOG_LEVEL_DEBUG + 1] = NULL};

const struct setting settings[] = {
	{"listen", SETTING_LIST, AT(listen), "127.0.0.1", .check = SETTING_ADDRESS,
	 .help = "Addresses to listen on: host[:port] for every transport that the address has,\n"
		 "rdma://host[:port] or tcp://host[:port] for one. \"0.0.0.0\" is every IPv4 address,\n"
		 "\"::\" every IPv6 one. RDMA needs an address of an RDMA device; the loopback is none."},
	{"port", SETTING_NUMBER, AT(port), "7471", 0, 65535,
	 .help = "Port of the addresses that name none, the same for RDMA and for TCP."},
	{"unix_socket", SETTING_STRING, AT(unix_socket), NULL, .check = SETTING_PATH,
	 .sample = "/run/rdmad/" ADDRESS_SERVICE_SOCKET,
	 .help = "UNIX socket for clients of this machine. Not root: rdmad.sock in $XDG_RUNTIME_DIR\n"
		 "or in /tmp/rdmad-UID."},
	{"unix_mode", SETTING_MODE, AT(unix_mode), "0666", 0, 0777,
	 .help = "Who may connect to it; as a rule everyone, as with TCP on the loopback."},
	{"transports", SETTING_SET, AT(transports), "rdma,tcp,unix", .choices = transports,
	 .help = "Transports to offer. One that this machine lacks is left out, and the log says why."},
	{"require_rdma", SETTING_BOOL, AT(require_rdma), "false", .help = "Do not start without RDMA: exit status 69."},
	{"device", SETTING_STRING, AT(device), NULL, .sample = "mlx5_0",
	 .help = "Use this RDMA device only. Unset: every active one."},
	{"services", SETTING_SET, AT(services), "ping,kv,gpu", .choices = NULL, .reload = true,
	 .help = "Services to offer."},
	{"workers", SETTING_NUMBER, AT(workers), "0", 0, 256,
	 .help = "Threads that serve connections. 0: half as many as processors."},
	{"poll", SETTING_TIME, AT(poll), "50us", 0, TIME_S, .always = true, .reload = true,
	 .help = "How long a worker that has nothing to do polls before it sleeps. Polling saves the\n"
		 "time of a wake-up and costs processor time. \"0\": sleep at once; \"always\": never\n"
		 "sleep. With a single processor it is 0 whatever is said here."},
	{"max_connections", SETTING_NUMBER, AT(max_connections), "1024", 1, 1000000, .reload = true,
	 .help = "Most connections; more are refused. Can be raised by a restart only."},
	{"message_size", SETTING_SIZE, AT(message_size), "16K", WIRE_MESSAGE_MIN, WIRE_MESSAGE_MAX,
	 .help = "Buffer for one message, shared by the connections of a worker."},
	{"message_max", SETTING_SIZE, AT(message_max), "1M", WIRE_MESSAGE_MIN, WIRE_MESSAGE_MAX,
	 .help = "Longest message that a client may ask for. Beyond message_size a connection has\n"
		 "buffers of its own."},
	{"credits", SETTING_NUMBER, AT(credits), "32", WIRE_CREDITS_MIN, WIRE_CREDITS_MAX,
	 .help = "Most messages that a client may have under way towards this daemon."},
	{"shared_receives", SETTING_NUMBER, AT(shared_receives), "1024", 16, 32767,
	 .help = "Most receive buffers of a worker, of message_size each, made as they are needed."},
	{"handshake_timeout", SETTING_TIME, AT(handshake_timeout), "2s", TIME_MS, 3600 * TIME_S,
	 .help = "Until a client must have completed its connection."},
	{"keepalive", SETTING_TIME, AT(keepalive), "10s", 0, 86400 * TIME_S,
	 .help = "After this time without traffic a client's host is asked whether it is there.\n"
		 "\"0\": never."},
	{"stall_timeout", SETTING_TIME, AT(stall_timeout), "30s", 0, 86400 * TIME_S,
	 .help = "A client that takes no answers for so long is disconnected. \"0\": never."},
	{"ack_timeout", SETTING_TIME, AT(ack_timeout), "0", 0, 3600 * TIME_S,
	 .help = "Until a packet without an answer is sent again; a host counts as dead after about\n"
		 "eight times this. \"0\": the default of the transport."},
	{"drain_timeout", SETTING_TIME, AT(drain_timeout), "5s", 0, 86400 * TIME_S, .reload = true,
	 .help = "How long the end waits for what is under way."},
	{"pid_file", SETTING_STRING, AT(pid_file), NULL, .check = SETTING_PATH, .sample = "/run/rdmad.pid",
	 .help = "File for the process id, locked while the daemon runs."},

	{"kv.memory", SETTING_SIZE, AT(kv_memory), "64M", MIB, 1ull << 46,
	 .help = "Memory for keys and values, taken and registered at the start. RDMA needs as much\n"
		 "locked memory (ulimit -l), or refuses values from 4 KiB on."},
	{"kv.value_max", SETTING_SIZE, AT(kv_value_max), "1G", 1, 1ull << 40, .help = "Longest value."},
	{"kv.eviction", SETTING_CHOICE, AT(kv_eviction), "none", .choices = evictions, .former = {"lru", "s3-fifo"},
	 .help = "When the memory is full: \"none\" refuses new values, \"s3-fifo\" (once named \"lru\")\n"
		 "drops what is not read, as rdmad.conf(5) explains."},

	{"gpu.backend", SETTING_CHOICE, AT(gpu_backend), "auto", .choices = backends,
	 .help = "Who does the jobs of the gpu service: \"cpu\", processors; \"cuda\", GPUs, without which\n"
		 "the daemon then does not start; \"auto\", GPUs where there are any."},
	{"gpu.devices", SETTING_LIST, AT(gpu_devices), "",
	 .help = "GPUs to use, by number or UUID; sessions take turns. Empty: the first."},
	{"gpu.kernels", SETTING_STRING, AT(gpu_kernels), NULL, .check = SETTING_PATH,
	 .sample = "/usr/local/lib/rdmad-gpu.ptx",
	 .help = "A file of kernels, PTX or machine code, in place of those that are built in."},
	{"gpu.sessions", SETTING_NUMBER, AT(gpu_sessions), "8", 1, 1024,
	 .help = "Most sessions, each of which is a connection and a process; more are refused."},
	{"gpu.queues", SETTING_NUMBER, AT(gpu_queues), "4", 1, WIRE_RING_QUEUES_MAX,
	 .help = "Most queues of a session. Queues are worked on at the same time."},
	{"gpu.slots", SETTING_NUMBER, AT(gpu_slots), "16", 1, WIRE_RING_SLOTS_MAX,
	 .help = "Most jobs that wait in a queue, and most results that wait to be fetched."},
	{"gpu.memory", SETTING_SIZE, AT(gpu_memory), "256M", 64 * KIB, 1ull << 40,
	 .help = "Most memory for the queues of a session, taken and registered when it begins. The\n"
		 "longest input or output is a little less than half of it, and 64M at most."},
	{"gpu.threads", SETTING_NUMBER, AT(gpu_threads), "0", 0, 256,
	 .help = "Threads of a session where processors do the jobs. 0: half as many as processors."},
	{"gpu.poll", SETTING_TIME, AT(gpu_poll), "200us", 0, TIME_S, .always = true,
	 .help = "How long a session's process that has nothing to do polls before it naps."},
	{"gpu.job_timeout", SETTING_TIME, AT(gpu_job_timeout), "10s", TIME_MS, 3600 * TIME_S,
	 .help = "A job that takes longer ends its session."},
	{"gpu.program", SETTING_STRING, AT(gpu_program), NULL, .check = SETTING_PATH,
	 .sample = "/usr/local/libexec/rdmad-gpu",
	 .help = "The program of a session's process. Unset: the one installed with the daemon."},

	{"control.socket", SETTING_STRING, AT(control_socket), NULL, .check = SETTING_PATH,
	 .sample = "/run/rdmad/control.sock",
	 .help = "UNIX socket for rdmactl status and the like. Only root and the daemon's own user are\n"
		 "answered. Not root: rdmad-control.sock in $XDG_RUNTIME_DIR or control.sock in\n"
		 "/tmp/rdmad-UID."},
	{"control.mode", SETTING_MODE, AT(control_mode), "0600", 0, 0777, .help = "Its permissions."},

	{"log.level", SETTING_CHOICE, AT(log_level), "info", .choices = levels, .reload = true,
	 .help = "\"error\", \"warn\", \"info\" or \"debug\"."},
	{"log.target", SETTING_STRING, AT(log_target), "stderr", .check = SETTING_TARGET, .reload = true,
	 .help = "\"stderr\", \"syslog\" or \"file:/path\", which SIGHUP opens anew."},
};

const unsigned settings_count = ARRAY_SIZE(settings);

static const char *service_choice(unsigned i)
{
	return i < WIRE_SERVICES ? wire_service_name(i) : NULL;
}

/* The services of this build are the choices of `services`; the bit is the service's number. */
const char *setting_choice(const struct setting *s, unsigned i, bool *usable)
{
	if (s->choices) {
		*usable = s->choices[i];
		return s->choices[i];
	}
	*usable = service_find(i);
	return service_choice(i);
}

static void print_help(FILE *out, const char *indent, const char *help)
{
	while (*help) {
		int n = (int)strcspn(help, "\n");

		fprintf(out, "%s# %.*s\n", indent, n, help);
		help += n + (help[n] == '\n');
	}
}

static void print_items(FILE *out, const char *items)
{
	const char *separator = "";

	fputs("[", out);
	while (*items) {
		int n = (int)strcspn(items, ",");

		fprintf(out, "%s\"%.*s\"", separator, n, items);
		items += n + (items[n] == ',');
		separator = ", ";
	}
	fputs("]", out);
}

static void print_setting(FILE *out, const struct setting *s)
{
	const char *dot = strchr(s->path, '.');
	const char *indent = dot ? "\t" : "", *value = s->value ? s->value : s->sample;

	fputc('\n', out);
	print_help(out, indent, s->help);
	fprintf(out, "%s#%s = ", indent, dot ? dot + 1 : s->path);
	if (s->type == SETTING_LIST || s->type == SETTING_SET)
		print_items(out, value);
	else if (s->type == SETTING_NUMBER || s->type == SETTING_BOOL)
		fputs(value, out);
	else
		fprintf(out, "\"%s\"", value);
	fputs(";\n", out);
}

void config_print_sample(FILE *out)
{
	const char *group = "";
	size_t length = 0;

	fputs("# rdmad.conf: settings of rdmad(8); see rdmad.conf(5). Each is shown with its default.\n"
	      "#\n"
	      "# Sizes (\"64K\", \"1.5G\") and times (\"50us\", \"2s\") are strings in quotes, with a unit;\n"
	      "# numbers have neither. rdmad -t checks this file, and SIGHUP reads it again.\n",
	      out);
	for (unsigned i = 0; i < settings_count; i++) {
		const char *dot = strchr(settings[i].path, '.');
		size_t n = dot ? (size_t)(dot - settings[i].path) : 0;

		if (n != length || strncmp(group, settings[i].path, n) != 0) {
			fputs(length ? "};\n" : "", out);
			group = settings[i].path;
			length = n;
			fprintf(out, "\n%.*s = {", (int)n, group);
		}
		print_setting(out, &settings[i]);
	}
	fputs(length ? "};\n" : "", out);
}

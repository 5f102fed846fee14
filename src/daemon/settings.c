/* settings.c: the daemon's settings, the walk over them and the services', and the sample that is printed of them. */
#include "daemon/settings.h"

#include <inttypes.h>
#include <stdlib.h>

#define AT(member) offsetof(struct config, member)

static const char *const levels[] = {[LOG_LEVEL_ERROR] = "error",
				     [LOG_LEVEL_WARN] = "warn",
				     [LOG_LEVEL_INFO] = "info",
				     [LOG_LEVEL_DEBUG] = "debug",
				     [LOG_LEVEL_DEBUG + 1] = NULL};

static const char *const formats[] = {[LOG_FORMAT_TEXT] = "text", [LOG_FORMAT_JSON] = "json", NULL};
static const char *const encrypts[] = {[CONN_CLEAR] = "no", [CONN_OFFER] = "offer", [CONN_REQUIRE] = "require", NULL};
static const char *const locals[] = {[ACCESS_EVERYONE] = "everyone", [ACCESS_USER] = "user", NULL};

static const char *transport_choice(unsigned i)
{
	return i < FABRIC_TRANSPORTS && !fabric_transports[i].encrypted ? fabric_transport_name(i) : NULL;
}

/* The services of this build; the bit is the service's number. */
static const char *service_choice(unsigned i)
{
	return i >= WIRE_SERVICES ? NULL : service_find(i) ? wire_service_name(i) : "";
}

static bool check_address(const char *text, char *why, size_t size)
{
	struct address address;

	return setting_check_address(fabric_address_parse, text, &address, why, size);
}

static bool check_target(const char *text, char *why, size_t size)
{
	if (strcmp(text, "stderr") == 0 || strcmp(text, "syslog") == 0 || strncmp(text, "file:/", 6) == 0)
		return true;
	snprintf(why, size, "\"%s\" is not \"stderr\", \"syslog\" or \"file:/path\"", text);
	return false;
}

static uint64_t workers_effective(const void *values)
{
	return workers_count(values);
}

static uint64_t per_source_effective(const void *values)
{
	return config_max_per_source(values);
}

static const struct setting general[] = {
	{"listen", SETTING_LIST, AT(listen), "127.0.0.1", .check = check_address,
	 .help = "Addresses to listen on: host[:port] for every transport that the address has,\n"
		 "rdma://host[:port] or tcp://host[:port] for one. \"*\" is every address, \"0.0.0.0\" every\n"
		 "IPv4 one, \"::\" every IPv6 one. RDMA needs an address of an RDMA device; the loopback is none."},
	{"port", SETTING_NUMBER, AT(port), "7471", 0, 65535,
	 .help = "Port of the addresses that name none, the same for RDMA and for TCP."},
	{"unix_socket", SETTING_STRING, AT(unix_socket), NULL, .check = setting_check_path,
	 .sample = "/run/rdmad/" ADDRESS_SERVICE_SOCKET,
	 .help = "UNIX socket for clients of this machine. Not root: rdmad.sock in $XDG_RUNTIME_DIR\n"
		 "or in /tmp/rdmad-UID."},
	{"unix_mode", SETTING_MODE, AT(unix_mode), "0666", 0, 0777,
	 .help = "Who may connect to it; as a rule everyone, as with TCP on the loopback."},
	{"transports", SETTING_SET, AT(transports), SETTING_EVERY, .choice = transport_choice,
	 .help = "Transports to offer. One that this machine lacks is left out, and the log says why. shm:\n"
		 "programs of this machine that connect by tcp or unix share memory with the daemon, in\n"
		 "place of the socket."},
	{"require_rdma", SETTING_BOOL, AT(require_rdma), "false",
	 .help = "Do not start without RDMA: exit status 69. Else a device that comes later is taken then."},
	{"device", SETTING_STRING, AT(device), NULL, .sample = "mlx5_0",
	 .help = "Use this RDMA device only, or one port of it, \"mlx5_0:2\". Unset: every active one."},
	{"services", SETTING_SET, AT(services), SETTING_EVERY, .choice = service_choice, .reload = true,
	 .help = "Services to offer."},
	{"workers", SETTING_NUMBER, AT(workers), "0", 0, WORKERS_MAX, .effective = workers_effective,
	 .help = "Threads that serve connections. 0: half as many as processors."},
	{"poll", SETTING_TIME, AT(poll), "200us", 0, TIME_S, .always = true, .reload = true,
	 .help = "How long a worker that has nothing to do may poll before it sleeps. Polling saves\n"
		 "the time of a wake-up and costs processor time, so it does while that shortens its\n"
		 "waits. \"0\": sleep at once; \"always\": never sleep. With fewer processors than\n"
		 "workers, with one, or with a limit of processor time it is 0 unless \"always\"."},
	{"max_connections", SETTING_NUMBER, AT(max_connections), "1024", 1, 1000000, .reload = true,
	 .help = "Most connections; more are refused. The last few are for users of this machine. Can be\n"
		 "raised by a restart only."},
	{"max_connections_per_source", SETTING_NUMBER, AT(max_per_source), "0", 0, 1000000,
	 .effective = per_source_effective, .reload = true,
	 .help = "Most connections of one source: of an address, a network of IPv6 (/64), or a user of\n"
		 "this machine. 0: half of max_connections."},
	{"message_size", SETTING_SIZE, AT(message_size), "16K", WIRE_MESSAGE_MIN, WIRE_MESSAGE_MAX,
	 .help = "Buffer for one message, shared by the connections of a worker."},
	{"message_max", SETTING_SIZE, AT(message_max), "1M", WIRE_MESSAGE_MIN, WIRE_MESSAGE_MAX,
	 .help = "Longest message that a client may ask for. Beyond message_size a connection has\n"
		 "buffers of its own."},
	{"own_buffers", SETTING_SIZE, AT(own_buffers), "256M", 0, 1ull << 50,
	 .help = "Most memory for buffers that connections have of their own: those with messages\n"
		 "beyond message_size, and those of the gpu service. More are refused."},
	{"parked_memory", SETTING_SIZE, AT(parked_memory), "256M", MIB, 1ull << 50,
	 .help = "Most memory for requests that wait, because their client takes no answers or others\n"
		 "have their turn. Beyond it the client that has most of them is disconnected. As much\n"
		 "again for answers that Redis's clients leave untaken."},
	{"credits", SETTING_NUMBER, AT(credits), "32", WIRE_CREDITS_MIN, WIRE_CREDITS_MAX,
	 .help = "Most messages that a client may have under way towards this daemon."},
	{"shared_receives", SETTING_NUMBER, AT(shared_receives), "1024", 16, 32767,
	 .help = "Most receive buffers of a worker, of message_size each, made as they are needed."},
	{"handshake_timeout", SETTING_TIME, AT(handshake_timeout), "2s", TIME_MS, 3600 * TIME_S,
	 .help = "Until a client must have completed its connection."},
	{"first_request_timeout", SETTING_TIME, AT(first_request_timeout), "60s", 0, 86400 * TIME_S,
	 .help = "A client that has asked for nothing for so long gives its place to another, if there\n"
		 "are max_connections. \"0\": never."},
	{"keepalive", SETTING_TIME, AT(keepalive), "10s", 0, 86400 * TIME_S,
	 .help = "After this time without traffic a client's host is asked whether it is there.\n"
		 "\"0\": never."},
	{"stall_timeout", SETTING_TIME, AT(stall_timeout), "30s", 0, 86400 * TIME_S,
	 .help = "A client that takes no answers for so long, or does not go on with what it began to\n"
		 "send, is disconnected. \"0\": never."},
	{"turn", SETTING_TIME, AT(turn), "200us", 10 * TIME_US, TIME_S,
	 .help = "How long a worker carries out requests before it looks after connections that wait;\n"
		 "what is left of a client's requests goes on in its next turn."},
	{"ack_timeout", SETTING_TIME, AT(ack_timeout), "0", 0, 3600 * TIME_S,
	 .help = "Until a packet without an answer is sent again; a host counts as dead after about\n"
		 "eight times this. \"0\": the default of the transport."},
	{"traffic_class", SETTING_NUMBER, AT(traffic_class), "0", 0, 255,
	 .help = "Of the packets: the byte that IPv4 calls type of service and IPv6 traffic class, for\n"
		 "networks that keep RDMA apart by it. It has the DSCP in its upper six bits."},
	{"drain_timeout", SETTING_TIME, AT(drain_timeout), "5s", 0, 86400 * TIME_S, .reload = true,
	 .help = "How long the end waits for what is under way."},
	{"insecure", SETTING_BOOL, AT(insecure), "false", .reload = true,
	 .help = "Let other machines in without keys: each host that reaches the daemon may do everything.\n"
		 "Without this, and without auth.keys, it listens on the loopback and on UNIX sockets only."},
	{"slow", SETTING_TIME, AT(slow), "0", 0, 3600 * TIME_S, .reload = true,
	 .help = "Requests of the key/value service, of Redis's and memcached's protocol that take as long\n"
		 "or longer are logged for rdmactl slow. \"0\": none is, and it costs nothing."},
	{"slow_keys", SETTING_BOOL, AT(slow_keys), "false", .reload = true,
	 .help = "Log the keys of slow requests, too, up to 128 bytes of each."},
	{"pid_file", SETTING_STRING, AT(pid_file), NULL, .check = setting_check_path, .sample = "/run/rdmad.pid",
	 .help = "File for the process id, locked while the daemon runs."},
};

static const struct setting grouped[] = {
	{"auth.keys", SETTING_STRING, AT(auth_keys), NULL, .check = setting_check_path, .sample = "/etc/rdmad/keys",
	 .reload = true,
	 .help = "File with the keys of clients, of which rdmactl key new makes one. With it a client of\n"
		 "another machine needs a key. Unset: rdmad/keys beside rdmad.conf, if it is there."},
	{"auth.clients", SETTING_STRING, AT(auth_clients), NULL, .check = setting_check_path,
	 .sample = "/etc/rdmad/clients", .reload = true,
	 .help = "File with what each client may do, see rdmad-auth(7). Unset: rdmad/clients beside\n"
		 "rdmad.conf, if it is there. Without one all may do everything."},
	{"auth.local", SETTING_CHOICE, AT(auth_local), "everyone", .choices = locals, .reload = true,
	 .help = "Clients of this machine that need no key: those of \"everyone\", or of \"user\", which is\n"
		 "root and the daemon's own user alone. Then others need one, also where insecure is true."},
	{"auth.munge", SETTING_BOOL, AT(auth_munge), "false", .reload = true,
	 .help = "Clients of any machine may prove by MUNGE which user they are, in place of a key, and then\n"
		 "have the rights of @UID in auth.clients, like users of this machine; see rdmad-auth(7)."},
	{"auth.encrypt", SETTING_CHOICE, AT(auth_encrypt), "no", .choices = encrypts,
	 .help = "Whether connections of other machines by TCP are encrypted, by the kernel: \"no\"; \"offer\",\n"
		 "with clients that have a key and can; \"require\", others are refused. RDMA never is."},

	{"control.socket", SETTING_STRING, AT(control_socket), NULL, .check = setting_check_path,
	 .sample = "/run/rdmad/control.sock",
	 .help = "UNIX socket for rdmactl status and the like. Only root and the daemon's own user are\n"
		 "answered. Not root: rdmad-control.sock in $XDG_RUNTIME_DIR or control.sock in\n"
		 "/tmp/rdmad-UID."},
	{"control.mode", SETTING_MODE, AT(control_mode), "0600", 0, 0777, .help = "Its permissions."},

	{"metrics.listen", SETTING_LIST, AT(metrics_listen), NULL, .check = setting_check_host, .sample = "127.0.0.1",
	 .help = "Addresses, host[:port], where a monitoring system reads metrics by HTTP, see rdmad-metrics(7);\n"
		 "by default port 7472. Every host that reaches such an address may read them. Unset: none."},

	{"log.level", SETTING_CHOICE, AT(log_level), "info", .choices = levels, .reload = true,
	 .help = "\"error\", \"warn\", \"info\" or \"debug\"."},
	{"log.target", SETTING_STRING, AT(log_target), "stderr", .check = check_target, .reload = true,
	 .help = "\"stderr\", \"syslog\" or \"file:/path\", which SIGHUP opens anew."},
	{"log.format", SETTING_CHOICE, AT(log_format), "text", .choices = formats, .reload = true,
	 .help = "\"text\", or \"json\": each line an object with time, level, component, pid and message."},
};

static const struct setting_table before = {general, ARRAY_SIZE(general), 0};
static const struct setting_table after = {grouped, ARRAY_SIZE(grouped), 0};

#define TABLES (WIRE_SERVICES + 2)

static const struct setting_table *table_at(unsigned i)
{
	const struct service *service = service_find(i - 1);

	if (i == 0)
		return &before;
	if (i == TABLES - 1)
		return &after;
	return service ? service->settings : NULL;
}

/* From the row that is next on. */
static void walk_settle(struct settings_walk *at)
{
	const struct setting_table *table = NULL;

	for (at->setting = NULL; at->table < TABLES; at->table++, at->row = 0) {
		table = table_at(at->table);
		if (!table || at->row >= table->count)
			continue;
		at->setting = &table->row[at->row];
		at->values = (void *)(uintptr_t)at->config;
		if (at->config && at->table > 0 && at->table < TABLES - 1)
			at->values = at->config->service[at->table - 1];
		return;
	}
}

struct settings_walk settings_walk(const struct config *config)
{
	struct settings_walk at = {.config = config};

	walk_settle(&at);
	return at;
}

void settings_next(struct settings_walk *at)
{
	at->row++;
	walk_settle(at);
}

int settings_make_room(struct config *config)
{
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		const struct service *service = service_find(id);

		if (!service || !service->settings)
			continue;
		config->service[id] = calloc(1, service->settings->size);
		if (!config->service[id])
			return -ENOMEM;
	}
	return 0;
}

void settings_free_room(struct config *config)
{
	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		free(config->service[id]);
}

static void print_help(FILE *out, const char *indent, const char *help)
{
	while (*help) {
		int n = (int)strcspn(help, "\n");

		fprintf(out, "%s# %.*s\n", indent, n, help);
		help += n + (help[n] == '\n');
	}
}

static void print_item(FILE *out, const char **separator, const char *item, size_t n)
{
	fprintf(out, "%s\"%.*s\"", *separator, (int)n, item);
	*separator = ", ";
}

static void print_items(FILE *out, const struct setting *s, const char *items)
{
	const char *separator = "";
	bool every = strcmp(items, SETTING_EVERY) == 0;
	const char *name;

	fputs("[", out);
	for (unsigned i = 0; every && (name = setting_choice(s, i)); i++)
		if (*name)
			print_item(out, &separator, name, strlen(name));
	while (!every && *items) {
		size_t n = strcspn(items, ",");

		print_item(out, &separator, items, n);
		items += n + (items[n] == ',');
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
		print_items(out, s, value);
	else if (s->type == SETTING_NUMBER || s->type == SETTING_BOOL)
		fputs(value, out);
	else
		fprintf(out, "\"%s\"", value);
	fputs(";\n", out);
}

static void print_quoted(FILE *out, const char *text)
{
	putc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putc('\\', out);
		putc(*text, out);
	}
	putc('"', out);
}

/* As a comment: the value goes on leaving it to the daemon, perhaps that of another machine. */
static void print_effective(FILE *out, const struct settings_walk *at)
{
	const struct setting *s = at->setting;
	uint64_t value, effective;
	char text[32];

	if (!s->effective)
		return;
	memcpy(&value, (const char *)at->values + s->offset, sizeof(value));
	effective = s->effective(at->values);
	if (effective == value)
		return;
	if (s->type == SETTING_SIZE)
		fprintf(out, " # in effect \"%s\"", units_format_size(effective, text));
	else
		fprintf(out, " # in effect %" PRIu64, effective);
}

static void print_value(FILE *out, const struct settings_walk *at)
{
	const struct setting *s = at->setting;
	const char *dot = strchr(s->path, '.'), *text;
	char buf[32];

	text = setting_text(s, at->values, 0, buf);
	if (!text && s->type == SETTING_STRING) {
		fprintf(out, "%s# %s is not set\n", dot ? "\t" : "", dot ? dot + 1 : s->path);
		return;
	}
	fprintf(out, "%s%s = ", dot ? "\t" : "", dot ? dot + 1 : s->path);
	if (s->type == SETTING_LIST || s->type == SETTING_SET) {
		putc('[', out);
		for (unsigned i = 0; (text = setting_text(s, at->values, i, buf)); i++) {
			fputs(i ? ", " : "", out);
			print_quoted(out, text);
		}
		putc(']', out);
	} else if (s->type == SETTING_NUMBER || s->type == SETTING_BOOL) {
		fputs(text, out);
	} else {
		print_quoted(out, text);
	}
	putc(';', out);
	print_effective(out, at);
	putc('\n', out);
}

/* Of "log.level": 3. 0: it is in no group. */
static size_t group_length(const char *path)
{
	const char *dot = strchr(path, '.');

	return dot ? (size_t)(dot - path) : 0;
}

static bool same_group(const char *a, const char *b)
{
	size_t n = group_length(a);

	return n == group_length(b) && strncmp(a, b, n) == 0;
}

/* Whether a row before this one has its group: then it was printed there. */
static bool printed_before(const struct settings_walk *end)
{
	for (struct settings_walk at = settings_walk(end->config); at.setting != end->setting; settings_next(&at))
		if (same_group(at.setting->path, end->setting->path))
			return true;
	return false;
}

/* From the group's first row on; tables may share one. Of a configuration its values; NULL: the sample. */
static void print_group(FILE *out, struct settings_walk at)
{
	const char *group = at.setting->path;
	size_t n = group_length(group);

	if (n)
		fprintf(out, "\n%.*s = {%s", (int)n, group, at.config ? "\n" : "");
	for (; at.setting; settings_next(&at)) {
		if (!same_group(at.setting->path, group))
			continue;
		if (at.config)
			print_value(out, &at);
		else
			print_setting(out, at.setting);
	}
	fputs(n ? "};\n" : "", out);
}

static void print_all(FILE *out, const struct config *config)
{
	for (struct settings_walk at = settings_walk(config); at.setting; settings_next(&at))
		if (!printed_before(&at))
			print_group(out, at);
}

void config_print_sample(FILE *out)
{
	fputs("# rdmad.conf: settings of rdmad(8); see rdmad.conf(5). Each is shown with its default.\n"
	      "#\n"
	      "# Sizes (\"64K\", \"1.5G\") and times (\"50us\", \"2s\") are strings in quotes, with a unit;\n"
	      "# numbers have neither. rdmad -t checks this file, and SIGHUP reads it again.\n",
	      out);
	print_all(out, NULL);
}

void config_print(const struct config *config, FILE *out)
{
	print_all(out, config);
}

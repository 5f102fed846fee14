/* check_config.c: the configuration: what is read, what is refused and in which words, what a reload takes. */
#include "daemon/settings.h"
#include "service/kv/kv.h"
#include "tests/suite.h"

#include <check.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sysexits.h>
#include <unistd.h>

static char said[8192];
static const struct config_overrides none;

static const struct kv_settings *kv_of(const struct config *config)
{
	return config->service[WIRE_KV];
}

static void listen_to_log(enum log_level level, const char *room, const char *text)
{
	size_t n = strlen(said);

	log_keep(level, room, text);
	snprintf(said + n, sizeof(said) - n, "%s\n", text);
}

static void setup(void)
{
	said[0] = '\0';
	log_set_handler(listen_to_log);
}

static int load(const char *text, struct config **out)
{
	char path[] = "/tmp/check_config.XXXXXX";
	int fd = mkstemp(path), rc;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	rc = config_load(path, &none, out);
	unlink(path);
	return rc;
}

/* The text of a file that is wrong, and what must be said of it. */
static const struct {
	const char *file, *says;
} bad[] = {
	{"gid_indx = 1;", ":1: unknown setting gid_indx"},
	{"\n\nprot = 1;", ":3: unknown setting prot; did you mean port?"},
	{"max_conections = 5;", "did you mean max_connections?"},
	{"kv = { memroy = \"1M\"; };", "unknown setting kv.memroy; did you mean kv.memory?"},
	{"kv = { zzzzzzzzzzzzzzz = 1; };", "unknown setting kv.zzzzzzzzzzzzzzz"},
	{"memory = \"64M\";", "unknown setting memory"},
	{"kv.memroy = \"1M\";", "unknown setting kv.memroy; did you mean kv.memory?"},
	{"\nkv.memory = \"1M\"; kv = { memory = \"2M\"; };", ":2: kv.memory is set twice"},
	{"kv.memory = 5; # \"kv.memory\"", "kv.memory is a size in quotes"},
	{"kv.port.memory = \"1M\";", "unknown setting kv.port.memory"},
	{"gpu.threads = 010;", "write 010 without a leading 0"},
	{"\ndevice = \"rxe0;\nport = 1;\n", "a text begins in line 2 and does not end there"},
	{"kv = 3;", "kv is a group: kv = { ... };"},
	{"port = { a = 1; };", "port is a number without quotes"},
	{"kv = { memory = 67108864; };", "kv.memory is a size in quotes, such as \"64M\""},
	{"kv = { memory = \"64Q\"; };", "\"64Q\" is not a size from \"1M\" to \"64T\""},
	{"kv = { memory = \"-1M\"; };", "is not a size"},
	{"kv = { memory = \"1K\"; };", "is not a size from \"1M\""},
	{"kv = { value_max = \"0\"; };", "is not a size from \"1\""},
	{"kv = { memory = \"99999999999999999999T\"; };", "is not a size"},
	{"keepalive = 10;", "keepalive is a time in quotes"},
	{"keepalive = \"10\";", "\"10\" is not a time"},
	{"keepalive = \"10s \";", "is not a time"},
	{"poll = \"sometimes\";", "or \"always\""},
	{"keepalive = \"always\";", "\"always\" is not a time"},
	{"port = \"7471\";", "port is a number without quotes"},
	{"port = 65536;", "65536 is not a number from 0 to 65535"},
	{"port = -1;", "-1 is not a number"},
	{"workers = 4294967297;", "4294967297 is not a number from 0 to 256"},
	{"max_connections = 3000000000;", "3000000000 is not a number"},
	{"port = 010;", "write 010 without a leading 0"},
	{"port = 0x1d2f;", "without a leading 0"},
	{"port = 7471L;", "port is a number"},
	{"port = 1.5;", "port is a number"},
	{"require_rdma = 1;", "require_rdma is true or false"},
	{"require_rdma = \"true\";", "require_rdma is true or false"},
	{"device = 5;", "device is a text in quotes"},
	{"device = \"\";", "device: it is empty"},
	{"unix_socket = \"rdmad.sock\";", "\"rdmad.sock\" is not a path from /"},
	{"unix_mode = \"888\";", "\"888\" is not a mode"},
	{"unix_mode = \"01777\";", "is not a mode"},
	{"unix_mode = 0666;", "unix_mode is a mode in quotes"},
	{"transports = [\"ib\"];", "there is no \"ib\"; there are rdma, tcp, shm, unix"},
	{"transports = [];", "transports has none by which a client can connect"},
	{"transports = [\"shm\"];", "transports has none by which a client can connect"},
	{"transports = [1];", "transports is a list of words in quotes"},
	{"services = [\"ping\", \"kvs\"];", "there is no \"kvs\"; there are ping, kv, gpu"},
	{"services = [\"unknown\"];", "there is no \"unknown\""},
	{"listen = [\"\"];", "listen: "},
	{"listen = [\"http://a\"];", "there is no such scheme"},
	{"listen = [\"a:70000\"];", "the port is not a number"},
	{"kv = { eviction = \"fifo\"; };", "there is no \"fifo\"; there are none, s3-fifo"},
	{"log = { target = \"file:here\"; };", "is not \"stderr\", \"syslog\" or \"file:/path\""},
	{"log = { level = \"loud\"; };", "there are error, warn, info, debug"},
	{"message_size = \"32K\"; message_max = \"16K\";", "message_max is less than message_size"},
	{"require_rdma = true; transports = [\"tcp\"];", "transports lacks rdma"},
	{"transports = [\"tcp\"]; listen = [\"rdma://a\"];", "listen has rdma://a, but transports lacks rdma"},
	{"gpu = { queues = 70; }; port = 70000;", "70000 is not a number"},
	{"/* port = 7000; */ port = 70000;", "70000 is not a number"},
	{"kv = { port = 1; }; port = 7000;", "unknown setting kv.port"},
	{"kv = { port = 1; }; port = 7000;", "port: it stands more than once in this line"},
	{"port = 1; port = 2;", "duplicate"},
	{"port", "syntax error (RD-2601)"},
	{"\x01\x02\xff", "syntax error"},
	{"listen = [\"a\",];", "syntax error; there is a comma in front of this ]"},
	{"kv = (1, 2,\n# more\n);", ":3: syntax error; there is a comma in front of this )"},
	{"require_rdma = yes;", "syntax error; yes is no value: texts are in quotes, and there are true and false"},
	{"port = 1;\nkv { memory = \"1M\"; };", ":2: syntax error; a group is NAME = { ... };"},
	{"\nkv = {\n  memory = \"1M\"; # }\n", "syntax error; the { of line 2 is not closed"},
	{"listen = [\"}\", \"b\";", "syntax error; the [ of line 1 is not closed"},
};

START_TEST(refuses)
{
	struct config *config = NULL;

	ck_assert_int_eq(load(bad[_i].file, &config), EX_CONFIG);
	ck_assert_msg(strstr(said, bad[_i].says), "%s\nshould say %s\nsays %s", bad[_i].file, bad[_i].says, said);
	ck_assert_msg(!strstr(strstr(said, bad[_i].says) + 1, bad[_i].says), "twice: %s", said);
	ck_assert_ptr_null(config);
}
END_TEST

START_TEST(tells_every_error)
{
	struct config *config;

	ck_assert_int_eq(load("a = 1;\nb = 2;\nport = 70000;\n", &config), EX_CONFIG);
	ck_assert_ptr_nonnull(strstr(said, ":1: unknown setting a"));
	ck_assert_ptr_nonnull(strstr(said, ":2: unknown setting b"));
	ck_assert_ptr_nonnull(strstr(said, ":3: port"));
}
END_TEST

START_TEST(refuses_what_is_no_file)
{
	struct config *config;

	ck_assert_int_eq(config_load("/nowhere/rdmad.conf", &none, &config), EX_CONFIG);
	ck_assert_ptr_nonnull(strstr(said, "No such file"));
	ck_assert_int_eq(config_load("/tmp", &none, &config), EX_CONFIG);
	ck_assert_ptr_nonnull(strstr(said, "it is a directory"));
}
END_TEST

START_TEST(has_defaults)
{
	struct config *c;

	ck_assert_int_eq(config_load(NULL, &none, &c), 0);
	ck_assert_uint_eq(c->listen.count, 1);
	ck_assert_str_eq(c->listen.item[0], "127.0.0.1");
	ck_assert_uint_eq(c->port, 7471);
	ck_assert_uint_eq(c->transports, (1u << (FABRIC_TRANSPORTS - 1)) - 1); /* "tls" is none of them */
	for (unsigned id = 0; id < WIRE_SERVICES; id++)
		ck_assert((c->services >> id & 1) == (service_find(id) != NULL));
	ck_assert_uint_eq(c->poll, 200 * TIME_US);
	ck_assert_uint_eq(kv_of(c)->memory, 0);
	ck_assert_uint_eq(kv_of(c)->value_max, GIB);
	ck_assert_uint_eq(c->handshake_timeout, 2 * TIME_S);
	ck_assert_uint_eq(c->log_level, LOG_LEVEL_INFO);
	ck_assert_uint_eq(c->unix_mode, 0666);
	ck_assert(!c->require_rdma);
	ck_assert_ptr_null(c->device);
	ck_assert_ptr_nonnull(c->unix_socket);
	ck_assert_ptr_nonnull(c->control_socket);
	config_free(c);
	ck_assert_str_eq(said, "");
}
END_TEST

/* As the manual writes them, and groups beside them. */
START_TEST(reads_dotted_names)
{
	struct config *c;

	ck_assert_int_eq(load("kv.memory = \"2M\"; /* kv.nothing = 1; */ log.level=\"debug\";\n"
			      "gpu.sessions = 3; gpu = { slots = 5; };\n"
			      "log.target = \"file:/tmp/a.b\"; // log.nothing = 1;\n"
			      "kv.value_max=\"1.5M\";",
			      &c),
			 0);
	ck_assert_uint_eq(kv_of(c)->memory, 2 * MIB);
	ck_assert_uint_eq(kv_of(c)->value_max, 3 * MIB / 2);
	ck_assert_uint_eq(c->log_level, LOG_LEVEL_DEBUG);
	ck_assert_str_eq(c->log_target, "file:/tmp/a.b");
	config_free(c);
}
END_TEST

START_TEST(reads)
{
	struct config *c;

	ck_assert_int_eq(load("# all kinds\n"
			      "listen = [\"10.0.0.1\", \"tcp://0.0.0.0:99\", \"[::1]\", \"::1\", \"rdma://h\"];\n"
			      "port = 5000; poll = \"always\"; require_rdma = true; device = \"rxe0\";\n"
			      "services = \"kv\"; unix_mode = \"0600\"; keepalive = \"0\";\n"
			      "max_connections=7;workers: 3\n"
			      "kv = { memory = \"1.5G\"; eviction = \"s3-fifo\"; };\n"
			      "log : { level = \"debug\"; target = \"file:/tmp/x\"; };\n",
			      &c),
			 0);
	ck_assert_uint_eq(c->listen.count, 5);
	ck_assert_uint_eq(c->port, 5000);
	ck_assert_uint_eq(c->poll, TIME_NEVER);
	ck_assert(c->require_rdma);
	ck_assert_str_eq(c->device, "rxe0");
	ck_assert_uint_eq(c->services, 1u << WIRE_KV);
	ck_assert_uint_eq(c->unix_mode, 0600);
	ck_assert_uint_eq(c->keepalive, 0);
	ck_assert_uint_eq(c->max_connections, 7);
	ck_assert_uint_eq(c->workers, 3);
	ck_assert_uint_eq(kv_of(c)->memory, 3 * GIB / 2);
	ck_assert_uint_eq(kv_of(c)->eviction, STORE_EVICT_S3_FIFO);
	ck_assert_uint_eq(c->log_level, LOG_LEVEL_DEBUG);
	ck_assert_str_eq(c->log_target, "file:/tmp/x");
	config_free(c);
}
END_TEST

/* A number is read where its name is, whatever else there is in the line, before it and behind it. */
static const struct {
	const char *file;
	unsigned port;
} numbers[] = {
	{"/* port 80 was the old one */ port = 7000;", 7000},
	{"/* port = 80; */ port = 7000;", 7000},
	{"/* port = 80;\n port = 81; */ port = 7000; # port = 82\n", 7000},
	{"// port = 80;\nport = 7000; // port = 81\n", 7000},
	{"# port = 80; /*\nport = 7000;", 7000},
	{"transports = [\"tcp\"]; port = 7000;", 7000},
	{"transports = [\"tcp\"]; /**/ port/* = 80 */=/* 81; */7000/* 82 */;", 7000},
	{"device = \"port = 80;\"; port = 7000;", 7000},
	{"device = \"\\\"port = 80; # \"; port = 7000;", 7000},
	{"device = \"\\\\\"; port = 7000; pid_file = \"/port = 80\";", 7000},
	{"device = \"a\nport = 80;\n\";\nport = 7000;", 7000},
	{"device = \"/* a\"; port = 7000; /* \" */ workers = 1;", 7000},
	{"workers = 2; port = 7000; credits = 3;", 7000},
	{"port: 7000, workers: 2, max_connections: 80", 7000},
	{"port\n=\n# 80\n7000\n;", 7000},
	{"\tport\t=\t7000\t", 7000},
	{"kv = { value_max = \"1M\"; }; port = 7000; gpu = { sessions = 3; queues = 2; };", 7000},
	{"max_connections = 80; port = 7000;\n\nworkers = 1;\n", 7000},
};

START_TEST(reads_numbers_where_they_stand)
{
	struct config *c;

	ck_assert_msg(load(numbers[_i].file, &c) == 0, "%s\nsays %s", numbers[_i].file, said);
	ck_assert_msg(c->port == numbers[_i].port, "%s\nis read as %u", numbers[_i].file, (unsigned)c->port);
	config_free(c);
}
END_TEST

static void write_file(const char *path, const char *text)
{
	FILE *out = fopen(path, "w");

	ck_assert_ptr_nonnull(out);
	fputs(text, out);
	ck_assert_int_eq(fclose(out), 0);
}

/* In the file that has it, and behind one that was included. */
START_TEST(reads_numbers_of_included_files)
{
	char dir[] = "/tmp/check_config.XXXXXX", outer[64], inner[64];
	struct config *c;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(outer, sizeof(outer), "%s/outer", dir);
	snprintf(inner, sizeof(inner), "%s/inner", dir);
	write_file(outer, "workers = 2; /* port = 1;\n*/\n@include \"inner\"\n/* credits = 5; */ credits = 4;\n");
	write_file(inner, "# port = 80;\n/* a\nb */ max_connections = 70; port = 7000;\n");
	ck_assert_msg(config_load(outer, &none, &c) == 0, "%s", said);
	ck_assert_uint_eq(c->workers, 2);
	ck_assert_uint_eq(c->port, 7000);
	ck_assert_uint_eq(c->max_connections, 70);
	ck_assert_uint_eq(c->credits, 4);
	config_free(c);
	write_file(inner, "\nport = 70000;\n");
	ck_assert_int_eq(config_load(outer, &none, &c), EX_CONFIG);
	ck_assert_ptr_nonnull(strstr(said, "inner:2: port: 70000 is not a number"));
	unlink(inner);
	unlink(outer);
	rmdir(dir);
}
END_TEST

/* A file that another daemon takes away at its end, between our open and our lock. */
static const char *taken_away;

int flock(int fd, int operation)
{
	if (taken_away)
		unlink(taken_away);
	taken_away = NULL;
	return (int)syscall(SYS_flock, fd, operation);
}

START_TEST(the_pid_file_is_the_one_that_is_found)
{
	char dir[] = "/tmp/check_config.XXXXXX", path[64];
	unsigned pid = 0;
	FILE *in;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/pid", dir);
	taken_away = path;
	ck_assert_int_eq(process_pid_file_create(path), 0);
	in = fopen(path, "r");
	ck_assert_ptr_nonnull(in);
	ck_assert_int_eq(fscanf(in, "%u", &pid), 1);
	fclose(in);
	ck_assert_uint_eq(pid, (unsigned)getpid());
	process_pid_file_remove(path);
	ck_assert_int_ne(access(path, F_OK), 0);
	rmdir(dir);
}
END_TEST

/* What services are given at the start does not change while they run, but for what the engine alone reads. */
START_TEST(no_service_has_settings_that_change)
{
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		const struct service *service = service_find(id);

		for (unsigned i = 0; service && service->settings && i < service->settings->count; i++)
			ck_assert_msg(!service->settings->row[i].reload ||
					      strcmp(service->settings->row[i].path, "cluster.key_file") == 0,
				      "%s", service->settings->row[i].path);
	}
}
END_TEST

START_TEST(fills_in_the_port)
{
	static const struct {
		const char *text;
		uint16_t port;
	} cases[] = {
		{"a", 5000},          {"a:7471", 7471},        {"a:1", 1},
		{"rdma://a", 5000},   {"rdma://a:7471", 7471}, {"::1", 5000},
		{"[::1]", 5000},      {"[::1]:7471", 7471},    {"tcp://[::1]", 5000},
		{"fe80::7471", 5000}, {"unix:///a:1", 0},
	};
	const struct config config = {.port = 5000};
	struct address address;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ck_assert_int_eq(config_listen_address(&config, cases[i].text, &address), 0);
		ck_assert_msg(address.port == cases[i].port, "%s: %u", cases[i].text, address.port);
	}
}
END_TEST

START_TEST(overrides)
{
	struct config_overrides over = {.listen = {2, {"1.2.3.4", "unix:///x"}}, .log_level = "error"};
	struct config *c;

	ck_assert_int_eq(config_load(NULL, &over, &c), 0);
	ck_assert_uint_eq(c->listen.count, 2);
	ck_assert_str_eq(c->listen.item[1], "unix:///x");
	ck_assert_uint_eq(c->log_level, LOG_LEVEL_ERROR);
	config_free(c);
}
END_TEST

static void note_change(void *arg, const char *path, bool restart)
{
	char *text = arg;

	snprintf(text + strlen(text), 256 - strlen(text), "%s%s ", path, restart ? "!" : "");
}

START_TEST(merges)
{
	struct config *old, *fresh;
	char changed[256] = "";

	ck_assert_int_eq(config_load(NULL, &none, &old), 0);
	ck_assert_int_eq(load("port = 1; poll = \"0\"; listen = [\"a\"]; services = [\"ping\"];"
			      "log = { target = \"syslog\"; };",
			      &fresh),
			 0);
	config_merge(old, fresh, note_change, changed);
	ck_assert_str_eq(changed, "listen! port! services poll log.target ");
	ck_assert_uint_eq(old->poll, 0);
	ck_assert_uint_eq(old->port, 7471);
	ck_assert_str_eq(old->listen.item[0], "127.0.0.1");
	ck_assert_str_eq(old->log_target, "syslog");
	ck_assert_uint_eq(old->services, 1u << WIRE_PING);
	config_free(fresh);
	config_free(old);
}
END_TEST

/* One policy under its name and its old name, so a file with the one in place of the other changes nothing. */
START_TEST(reads_a_former_word)
{
	struct config *old, *now;
	char changed[256] = "";

	ck_assert_int_eq(load("kv = { eviction = \"lru\"; };", &old), 0);
	ck_assert_int_eq(load("kv = { eviction = \"s3-fifo\"; };", &now), 0);
	ck_assert_uint_eq(kv_of(old)->eviction, STORE_EVICT_S3_FIFO);
	ck_assert_uint_eq(kv_of(now)->eviction, STORE_EVICT_S3_FIFO);
	config_merge(old, now, note_change, changed);
	ck_assert_str_eq(changed, "");
	config_free(now);
	config_free(old);
}
END_TEST

/* The sample with every setting uncommented says the same as the table. */
START_TEST(sample_is_true)
{
	struct config *sample, *defaults;
	char *text = NULL, *out, changed[256] = "";
	size_t size;
	FILE *f = open_memstream(&text, &size);

	config_print_sample(f);
	fclose(f);
	out = text;
	for (char *p = text; *p; p++)
		if (*p != '#' || p[1] == ' ' || p[1] == '\n')
			*out++ = *p;
	*out = '\0';
	ck_assert_int_eq(load(text, &sample), 0);
	ck_assert_int_eq(config_load(NULL, &none, &defaults), 0);
	config_merge(defaults, sample, note_change, changed);
	/* these have no default, or one that depends on the user */
	for (char *word = strtok(changed, " "); word; word = strtok(NULL, " "))
		ck_assert_msg(
			strstr("unix_socket! device! pid_file! control.socket! gpu.kernels! gpu.program! "
			       "cluster.table! cluster.node! cluster.state! cluster.endpoints! cluster.name! "
			       "cluster.user! cluster.password_file! cluster.key_file log.directory! resp.listen! "
			       "resp.unix_socket! "
			       "resp.notify! resp.rdma! "
			       "memcached.listen! "
			       "memcached.unix_socket! metrics.listen! auth.keys auth.clients",
			       word),
			"%s", word);
	config_free(sample);
	config_free(defaults);
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tc = suite_case(suite, "config", setup, NULL);

	tcase_add_loop_test(tc, refuses, 0, (int)ARRAY_SIZE(bad));
	tcase_add_test(tc, tells_every_error);
	tcase_add_test(tc, refuses_what_is_no_file);
	tcase_add_test(tc, has_defaults);
	tcase_add_test(tc, reads);
	tcase_add_test(tc, reads_dotted_names);
	tcase_add_loop_test(tc, reads_numbers_where_they_stand, 0, (int)ARRAY_SIZE(numbers));
	tcase_add_test(tc, reads_numbers_of_included_files);
	tcase_add_test(tc, the_pid_file_is_the_one_that_is_found);
	tcase_add_test(tc, no_service_has_settings_that_change);
	tcase_add_test(tc, fills_in_the_port);
	tcase_add_test(tc, overrides);
	tcase_add_test(tc, merges);
	tcase_add_test(tc, reads_a_former_word);
	tcase_add_test(tc, sample_is_true);
	return suite_run(suite);
}

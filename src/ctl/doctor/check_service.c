/* check_service.c: firewall, port, configuration, clock, log, keys, sandbox, the kernel's log: D24 to D31. */
#include "ctl/doctor/doctor.h"
#include "auth/auth.h"

#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/vfs.h>
#include <sysexits.h>
#include <unistd.h>

#include "config.h"

#define ROCE_PORT 4791
#define TMPFS_TYPE 0x01021994
#define NFS_TYPE 0x6969
#define RAMFS_TYPE 0x858458f6
#define SYNCS 50
#define SYNC_SLOW (20 * TIME_MS)
#define LINES_MAX 400

static unsigned port_of_config(const struct doctor *d)
{
	uint64_t port;

	return config_size(d, "port", &port, false) && port < 65536 ? (unsigned)port : ADDRESS_PORT;
}

/* Whether a rule is about a port of a protocol: "tcp dport 7471", "tcp dport { 22, 7471 }", "udp dport 4000-5000". */
static bool rule_has_port(const char *rule, const char *protocol, unsigned port)
{
	char word[32];
	const char *at;

	snprintf(word, sizeof(word), "%s dport", protocol);
	at = strstr(rule, word);
	if (!at) { /* as iptables-save has it */
		snprintf(word, sizeof(word), "-p %s ", protocol);
		at = strstr(rule, word) ? strstr(rule, "--dport") : NULL;
		snprintf(word, sizeof(word), "--dport%s", at && at[strlen("--dport")] == 's' ? "s" : "");
	}
	for (at = at ? at + strlen(word) : NULL; at && *at; at++) {
		char *end;
		unsigned long from, to;

		if (!strchr(" {},", *at) && (*at < '0' || *at > '9'))
			return false;
		if (*at < '0' || *at > '9')
			continue;
		from = to = strtoul(at, &end, 10);
		if (*end == '-' || *end == ':')
			to = strtoul(end + 1, &end, 10);
		if (port >= from && port <= to)
			return true;
		at = end - 1;
	}
	return false;
}

/* Whether any rule of a text accepts the port: of all chains, to which others jump. */
static bool rules_accept(const char *text, const char *protocol, unsigned port)
{
	char *copy = strdup(text), *next = copy, *rule;
	bool accepts = false;

	while (!accepts && (rule = strsep(&next, "\n")))
		accepts = rule_has_port(rule, protocol, port) && strstr(rule, "accept");
	free(copy);
	return accepts;
}

/* A port that clients come to. */
struct gate {
	const char *protocol;
	unsigned port;
	bool accepted; /* by a rule of any chain */
};

/* One chain of "nft list ruleset" that sees what comes in: "NAME {", and its rules until the "}" of its end. */
static void check_chain(struct doctor *d, const char *table, const char *chain, const struct gate *gate)
{
	bool drops = strstr(chain, "policy drop"), accepts = gate->accepted && strstr(chain, "jump ");
	char number[16], name[64], *copy = strdup(chain), *next = copy, *rule;
	const char *const names[] = {"TABLE", table, "CHAIN", name, "PROTO", gate->protocol, "PORT", number, NULL};

	snprintf(number, sizeof(number), "%u", gate->port);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(chain, " {"), chain);
	while ((rule = strsep(&next, "\n"))) {
		bool has_port = rule_has_port(rule, gate->protocol, gate->port);

		rule += strspn(rule, "\t ");
		if (strncmp(rule, "type ", 5) == 0)
			continue;
		if (has_port && (strstr(rule, "drop") || strstr(rule, "reject"))) {
			finding_add(d, 2402, names, "%s", rule);
			break;
		}
		accepts |= strcmp(rule, "accept") == 0 || (has_port && strstr(rule, "accept"));
	}
	if (drops && !accepts && !rule)
		finding_add(d, 2401, names, "%s %s has policy drop, and no rule that accepts %s dport %u", table, name,
			    gate->protocol, gate->port);
	free(copy);
}

/* "iptables-save", where there is no nft: the chain INPUT of its filter. */
static void check_iptables(struct doctor *d, const struct gate *gate)
{
	static const char *const save[] = {"iptables-save", NULL};
	bool drops = false, accepts = false, filter = false;
	int status;
	char *text = look_program(&d->look, save, &status), *next = status == 0 ? text : NULL, *rule;
	char number[16];
	const char *const names[] = {"PROTO", gate->protocol, "PORT", number, NULL};

	snprintf(number, sizeof(number), "%u", gate->port);
	while ((rule = strsep(&next, "\n"))) {
		bool has_port = rule_has_port(rule, gate->protocol, gate->port);

		filter = *rule == '*' ? strcmp(rule, "*filter") == 0 : filter;
		drops |= filter && strncmp(rule, ":INPUT DROP", 11) == 0;
		if (filter && has_port && strncmp(rule, "-A INPUT ", 9) == 0 &&
		    (strstr(rule, "-j DROP") || strstr(rule, "-j REJECT"))) {
			finding_add(d, 2404, names, "%s", rule);
			break;
		}
		accepts |= strcmp(rule, "-A INPUT -j ACCEPT") == 0 || (has_port && strstr(rule, "-j ACCEPT"));
	}
	if (drops && !accepts && !rule)
		finding_add(d, 2403, names, "INPUT has policy DROP, and no rule that accepts %s port %u",
			    gate->protocol, gate->port);
	free(text);
}

void check_firewall(struct doctor *d)
{
	static const char *const list[] = {"nft", "list", "ruleset", NULL};
	struct gate gates[] = {{"tcp", port_of_config(d), false}, {"udp", ROCE_PORT, false}};
	int status;
	char *text = look_program(&d->look, list, &status), *next = status == 0 ? text : NULL, *chain, table[80] = "";
	size_t count = 1;

	for (unsigned i = 0; i < d->ports; i++)
		if (d->port[i].ethernet)
			count = ARRAY_SIZE(gates);
	for (size_t i = 0; i < count && !next; i++)
		check_iptables(d, &gates[i]);
	for (size_t i = 0; i < count && next; i++)
		gates[i].accepted = rules_accept(next, gates[i].protocol, gates[i].port);
	while (next && (chain = strstr(next, "chain "))) {
		char *end = strstr(chain, "\n\t}"), *head = strstr(next, "table ");

		if (head && head < chain)
			snprintf(table, sizeof(table), "%.*s", (int)(strcspn(head + 6, "{") - 1), head + 6);
		next = end ? end + 3 : NULL;
		if (end)
			*end = '\0';
		for (size_t i = 0; i < count && strstr(chain, "hook input"); i++)
			check_chain(d, table, chain + 6, &gates[i]);
	}
	free(text);
}

/* Whether a descriptor of a process is that socket. */
static bool process_has(struct doctor *d, const char *process, const char *wanted)
{
	char *files = look_names(&d->look, "/proc/%s/fd", process), path[PATH_MAX], target[64];
	bool found = false;

	look_each(file, files)
	{
		ssize_t len;

		snprintf(path, sizeof(path), "%s/proc/%s/fd/%s", d->look.root, process, file);
		len = readlink(path, target, sizeof(target) - 1);
		target[MAX(len, 0)] = '\0';
		found |= strcmp(target, wanted) == 0;
	}
	free(files);
	return found;
}

/* Whether a process is an rdmad of that user. */
static bool is_daemon_of(struct doctor *d, const char *process, unsigned user)
{
	char *status, name[64];
	uint64_t uid;
	bool is;

	look_line(&d->look, name, sizeof(name), "/proc/%s/comm", process);
	if (strcmp(name, "rdmad") != 0)
		return false;
	status = look_text(&d->look, "/proc/%s/status", process);
	is = field_number(status, "Uid:", &uid, 10) && uid == user;
	free(status);
	return is;
}

/* The process that has a socket, and its name: its id, or 0: none that this user may look at. Then it is taken for the
 * daemon where one of the socket's user runs. */
static unsigned socket_owner(struct doctor *d, unsigned long inode, unsigned user, char *name, size_t size)
{
	char *processes = look_names(&d->look, "/proc"), wanted[48];
	unsigned owner = 0;

	snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
	*name = '\0';
	look_each(process, processes)
	{
		if (*process < '1' || *process > '9')
			continue;
		if (process_has(d, process, wanted)) {
			owner = (unsigned)atoi(process);
			look_line(&d->look, name, size, "/proc/%s/comm", process);
			break;
		}
		if (is_daemon_of(d, process, user))
			snprintf(name, size, "rdmad");
	}
	free(processes);
	return owner;
}

/* Lines of /proc/net/tcp: number, local address:port, remote, state (0A listens), ..., uid, timeout, inode. */
static bool check_sockets(struct doctor *d, const char *file)
{
	char *text = look_text(&d->look, "%s", file), *next = text, *line, name[64], number[16];
	unsigned port, state, uid, pid;
	unsigned long inode;
	bool found = false;

	while (!found && (line = strsep(&next, "\n"))) {
		if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %u %*d %lu", &port, &state, &uid,
			   &inode) != 4 ||
		    state != 0x0a || port != port_of_config(d))
			continue;
		pid = socket_owner(d, inode, uid, name, sizeof(name));
		if ((d->pid && pid == (unsigned)d->pid) || strcmp(name, "rdmad") == 0)
			continue;
		found = true;
		snprintf(number, sizeof(number), "%u", pid);
		if (pid)
			finding_add(d, 2501, NAMES("PID", number), "port %u: %s, process %u, user %u", port, name, pid,
				    uid);
		else
			finding_add(d, 2501, NULL, "port %u: a process of user %u", port, uid);
	}
	free(text);
	return found;
}

void check_port(struct doctor *d)
{
	if (!check_sockets(d, "/proc/net/tcp"))
		check_sockets(d, "/proc/net/tcp6");
}

/* The number that a message of rdmad has at its end, as "(RD-5001)"; else that of a start that fails. */
static unsigned number_of_message(const char *message)
{
	const char *at = strstr(message, "(RD-");
	unsigned number = at ? (unsigned)strtoul(at + strlen("(RD-"), NULL, 10) : 0;

	return error_find(number) ? number : 2603;
}

/* What rdmad says in the way of its start, a finding for each of its errors. Of a daemon that another user starts this
 * one can tell no more than that its file is right. */
void check_config(struct doctor *d)
{
	const char *arguments[] = {d->program, daemon_is_ours(d) ? "-t" : "--offline", d->file ? "-c" : NULL, d->file,
				   NULL};
	struct look unheard = {.root = ""};
	char *text, *next, *line, directory[512];
	int status, errors = 0;

	if (!d->config) {
		finding_add(d, d->config_status == 127 ? 2602 : 2601, NAMES("FILE", config_file(d)), "%s",
			    d->config_wrong);
		return;
	}
	if (!d->live)
		return;
	text = look_program(&unheard, arguments, &status);
	/* Files that this user may not read are the daemon's own. */
	if (status == EX_NOPERM && !daemon_is_ours(d))
		status = 0;
	next = text && status != 0 && status != 127 ? text : NULL;
	config_value(d, "log.directory", directory, sizeof(directory));
	while ((line = strsep(&next, "\n"))) {
		if (strncmp(line, "error ", 6) != 0)
			continue;
		errors++;
		finding_add(d, number_of_message(line), NAMES("FILE", config_file(d), "DIR", directory),
			    "rdmad %s, exit status %d: %s", arguments[1], status, line);
	}
	if (text && status != 0 && status != 127 && !errors)
		finding_add(d, 2603, NAMES("FILE", config_file(d)), "rdmad %s, exit status %d: %s", arguments[1],
			    status, text);
	free(text);
}

/* Versions of keys come from the clock where no log has them. */
void check_clock(struct doctor *d)
{
	struct timex clock = {.modes = 0};

	if (adjtimex(&clock) == TIME_ERROR)
		finding_add(d, 2701, NULL, "adjtimex: %s",
			    clock.status & STA_UNSYNC ? "the clock is not synchronized" : "the clock has an error");
}

/* Write blocks there and have each on the disk: how long the slowest takes. The file has no name. */
static int time_syncs(const char *directory, uint64_t *slowest)
{
	void *block;
	int fd = open(directory, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600), rc = 0;

	if (fd < 0)
		return -errno;
	if (posix_memalign(&block, 4096, 4096) != 0) {
		close(fd);
		return -ENOMEM;
	}
	memset(block, 0, 4096);
	for (unsigned i = 0; i < SYNCS && rc == 0; i++) {
		uint64_t begin = time_now();

		if (pwrite(fd, block, 4096, (off_t)i * 4096) != 4096 || fdatasync(fd) != 0)
			rc = errno ? -errno : -EIO;
		*slowest = MAX(*slowest, time_now() - begin);
	}
	free(block);
	close(fd);
	return rc;
}

/* `waits`: answers wait for the disk. */
static void check_disk(struct doctor *d, const char *directory, bool waits)
{
	char have[32], need[32];
	struct statfs fs;
	uint64_t slowest = 0, bytes;
	int rc;

	if (statfs(directory, &fs) != 0)
		return;
	if (fs.f_type == TMPFS_TYPE || fs.f_type == NFS_TYPE || fs.f_type == RAMFS_TYPE)
		finding_add(d, 2803, NULL, "%s is on %s", directory, fs.f_type == NFS_TYPE ? "NFS" : "tmpfs");
	bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
	if (bytes / 2 < d->store)
		finding_add(d, 2804, NULL, "%s: free %s, twice kv.memory %s", directory,
			    units_human_size((double)bytes, have), units_human_size(2.0 * (double)d->store, need));
	rc = time_syncs(directory, &slowest);
	if (rc == -EINVAL)
		finding_add(d, 2806, NULL, "%s: %s", directory, strerror(-rc));
	else if (rc == 0 && waits && slowest > SYNC_SLOW)
		finding_add(d, 2805, NULL, "%s: the slowest fdatasync of %u takes %s", directory, SYNCS,
			    units_format_time(slowest / TIME_MS * TIME_MS, have));
}

/* The directory may be missing: rdmad makes it, and where it cannot rdmad -t says so. */
void check_log(struct doctor *d)
{
	char directory[512], policy[32];
	struct stat st;

	if (!config_value(d, "log.directory", directory, sizeof(directory)) || !*directory ||
	    stat(directory, &st) != 0 || !S_ISDIR(st.st_mode))
		return;
	config_value(d, "log.policy", policy, sizeof(policy));
	if (st.st_mode & 0022)
		finding_add(d, 2802, NAMES("DIR", directory), "%s: mode %04o, owner %u", directory,
			    (unsigned)st.st_mode & 07777, (unsigned)st.st_uid);
	else
		check_disk(d, directory, strcmp(policy, "always") == 0);
}

/* Read it by the daemon's own rules. What the file has goes nowhere. */
void check_keys(struct doctor *d)
{
	char file[512], path[PATH_MAX];
	struct auth_keys *keys = NULL;
	uid_t user = geteuid();
	struct passwd *entry;
	char text[600], name[40];
	struct stat st;
	const char *why;
	int rc;

	if (!config_value(d, "auth.keys", file, sizeof(file)) || !*file)
		snprintf(file, sizeof(file), SYSCONFDIR "/rdmad/keys");
	snprintf(path, sizeof(path), "%s%s", d->look.root, file);
	if (access(path, F_OK) != 0)
		return;
	log_hush_begin();
	rc = auth_begin();
	if (rc == 0)
		rc = auth_keys_load(path, &keys);
	why = log_hush_end();
	/* Root reads it whatever its owner; the daemon takes what is root's or its own, and must be able to read it. */
	if (d->live && daemon_user(d, &user) && user && rc == 0 && stat(path, &st) == 0 && st.st_uid != user) {
		snprintf(text, sizeof(text), "%.500s is of user %u, and rdmad runs as user %u", file, st.st_uid, user);
		why = text;
		rc = -EPERM;
	}
	entry = getpwuid(user);
	snprintf(name, sizeof(name), "%u", user);
	if (rc != 0 && rc != -EACCES)
		finding_add(d, 2901, NAMES("FILE", file, "UNIT", d->unit, "USER", entry ? entry->pw_name : name), "%s",
			    *why ? why : strerror(-rc));
	auth_keys_free(keys);
}

static char *kernel_log(struct doctor *d)
{
	static const char *const dmesg[] = {"dmesg", NULL};
	int status;
	char *text = look_program(&d->look, dmesg, &status);

	if (status == 0)
		return text;
	free(text);
	return NULL;
}

/* The last line of the kernel's log that has one word of each list. free() it. NULL: there is none. *lines is how
 * many. */
static char *find_in_log(const char *log, const char *const *some, const char *const *others, unsigned *lines)
{
	char *last = NULL, *line;

	*lines = 0;
	for (const char *at = log; at && *at; at += strcspn(at, "\n"), at += *at == '\n') {
		bool one = false, other = false;

		line = strndup(at, MIN(strcspn(at, "\n"), LINES_MAX));
		for (const char *const *word = some; line && *word; word++)
			one |= strcasestr(line, *word) != NULL;
		for (const char *const *word = others; line && *word; word++)
			other |= strcasestr(line, *word) != NULL;
		if (one && other) {
			free(last);
			last = line;
			++*lines;
		} else {
			free(line);
		}
	}
	return last;
}

void check_sandbox(struct doctor *d)
{
	char modules[256], *log = kernel_log(d), *line;
	unsigned lines;

	if (look_line(&d->look, modules, sizeof(modules), "/sys/kernel/security/lsm") && !strstr(modules, "landlock"))
		finding_add(d, 3001, NULL, "/sys/kernel/security/lsm: %s", modules);
	line = find_in_log(log, NAMES("apparmor=\"DENIED\"", "avc:  denied"), NAMES("rdmad"), &lines);
	if (line)
		finding_add(d, 3002, NULL, "%u times, the last: %s", lines, line);
	free(line);
	free(log);
}

void check_kernel(struct doctor *d)
{
	char *log = kernel_log(d), *line;
	unsigned lines;

	line = find_in_log(log, NAMES("mlx5_", "mlx4_", "bnxt_re", "irdma", "rdma_rxe", "infiniband"),
			   NAMES("error", "fail", "timeout", "CREATE_MKEY", "link down", "fatal"), &lines);
	if (line)
		finding_add(d, 3101, NULL, "%u lines, the last: %s", lines, line);
	free(line);
	line = find_in_log(log, NAMES("NVRM"), NAMES("Xid"), &lines);
	if (line)
		finding_add(d, 3102, NULL, "%u lines, the last: %s", lines, line);
	free(line);
	free(log);
}

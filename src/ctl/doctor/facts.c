/* facts.c: what several checks need to know: configuration, running daemon, ports of devices, addresses. */
#include "ctl/doctor/doctor.h"

#include <arpa/inet.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

const char scheme_rdma[] = "rdma", scheme_tcp[] = "tcp";

/*
 * The configuration, as the daemon understands it: rdmad -T prints it.
 */

/* The daemon's program: beside this one, as it is built or installed, else by $PATH. */
static void find_daemon(struct doctor *d)
{
	static const char *const places[] = {"/rdmad", "/../rdmad", "/../sbin/rdmad"};
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[MAX(len, 0)] = '\0';
	if (strrchr(self, '/'))
		*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places) && len > 0; i++) {
		snprintf(d->program, sizeof(d->program), "%.480s%s", self, places[i]);
		if (access(d->program, X_OK) == 0)
			return;
	}
	snprintf(d->program, sizeof(d->program), "rdmad");
}

static void read_config(struct doctor *d)
{
	static const char name[] = "/programs/rdmad_-T";
	struct look unheard = {.root = ""}; /* the bundle has it under one name, whatever the file's is */
	const char *arguments[] = {d->program, "-T", d->file ? "-c" : NULL, d->file, NULL};
	char *text;

	find_daemon(d);
	if (d->live) {
		text = look_program(&unheard, arguments, &d->config_status);
	} else {
		text = look_text(&d->look, "%s", name);
		d->config_status = text ? 0 : 127;
	}
	if (text && d->config_status == 0) {
		if (d->live && d->look.into)
			bundle_add(d->look.into, name, text, strlen(text));
		d->config = text;
		return;
	}
	snprintf(d->config_wrong, sizeof(d->config_wrong), "%.*s", text ? (int)strcspn(text, "\n") : 27,
		 text ? text : "there is no rdmad to ask it");
	free(text);
}

const char *config_file(const struct doctor *d)
{
	return d->file ? d->file : SYSCONFDIR "/rdmad.conf";
}

/* The line of a setting: what stands behind its name. NULL: it is not set. */
static const char *config_line(const struct doctor *d, const char *path)
{
	const char *dot = strchr(path, '.'), *name = dot ? dot + 1 : path;
	size_t group_len = dot ? (size_t)(dot - path) : 0, len = strlen(name);
	bool inside = !dot;

	for (const char *at = d->config; at && *at; at += strcspn(at, "\n"), at += *at == '\n') {
		const char *word = *at == '\t' ? at + 1 : at;

		if (dot && strncmp(at, path, group_len) == 0 && strncmp(at + group_len, " = {", 4) == 0)
			inside = true;
		else if (dot && *at == '}')
			inside = false;
		else if (inside && (*at == '\t') == (dot != NULL) && strncmp(word, name, len) == 0 &&
			 strncmp(word + len, " = ", 3) == 0)
			return word + len + 3;
	}
	return NULL;
}

bool config_value(const struct doctor *d, const char *path, char *buf, size_t size)
{
	const char *at = config_line(d, path);
	size_t n = 0;

	*buf = '\0';
	if (!at)
		return false;
	for (bool text = false; *at && *at != '\n' && n + 1 < size; at++) {
		if (*at == '"')
			text = !text;
		else if (!text && *at == ';')
			break;
		else if (text || !strchr("[]", *at))
			buf[n++] = *at;
	}
	buf[n] = '\0';
	return true;
}

bool config_size(const struct doctor *d, const char *path, uint64_t *out, bool effective)
{
	static const char mark[] = "# in effect ";
	const char *at = config_line(d, path), *comment = at ? strstr(at, mark) : NULL;
	char text[64];

	if (!config_value(d, path, text, sizeof(text)))
		return false;
	if (effective && comment && comment < at + strcspn(at, "\n")) {
		comment += strlen(mark);
		comment += *comment == '"';
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(comment, "\"\n"), comment);
	}
	return units_parse_size(text, out) == 0;
}

bool field_number(const char *text, const char *name, uint64_t *out, int base)
{
	size_t len = strlen(name);
	char *end;

	for (const char *at = text; at && *at; at += strcspn(at, "\n"), at += *at == '\n') {
		if (strncmp(at, name, len) != 0)
			continue;
		*out = strtoull(at + len, &end, base);
		return end > at + len;
	}
	return false;
}

/*
 * Ports.
 */

/* The netdev of a port: of its first GID that has one, else the device's. */
static void find_netdev(struct look *look, struct port *p)
{
	for (unsigned i = 0; i < 16 && !*p->netdev; i++)
		look_line(look, p->netdev, sizeof(p->netdev), "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%u",
			  p->device, p->number, i);
	if (!*p->netdev)
		look_line(look, p->netdev, sizeof(p->netdev), "/sys/class/infiniband/%s/parent", p->device);
	if (!*p->netdev) {
		char *names = look_names(look, "/sys/class/infiniband/%s/device/net", p->device);

		snprintf(p->netdev, sizeof(p->netdev), "%s", names ? names : "");
		free(names);
	}
}

static void find_ports(struct doctor *d)
{
	char *devices = look_names(&d->look, "/sys/class/infiniband");

	look_each(device, devices)
	{
		char *ports = look_names(&d->look, "/sys/class/infiniband/%s/ports", device);

		look_each(number, ports)
		{
			struct port *p = &d->port[d->ports];
			char link[32];

			if (d->ports == PORTS_MAX)
				break;
			*p = (struct port){.number = (unsigned)atoi(number)};
			snprintf(p->device, sizeof(p->device), "%s", device);
			look_line(&d->look, link, sizeof(link), "/sys/class/infiniband/%s/ports/%s/link_layer", device,
				  number);
			p->ethernet = strcmp(link, "Ethernet") == 0;
			find_netdev(&d->look, p);
			d->ports++;
		}
		free(ports);
	}
	free(devices);
}

bool port_is_first(const struct doctor *d, unsigned index)
{
	return !index || strcmp(d->port[index].device, d->port[index - 1].device) != 0;
}

/*
 * Addresses, by files, so that a root has them: those of IPv4 are in the table of routes, which say of which netdev
 * their network is.
 */
static void add_address(struct doctor *d, const struct local_address *address)
{
	for (unsigned i = 0; i < d->addresses; i++)
		if (strcmp(d->address[i].text, address->text) == 0)
			return;
	if (d->addresses < ADDRESSES_MAX)
		d->address[d->addresses++] = *address;
}

/* The network that an address is in; `routes` is /proc/net/route. */
static void find_network(const char *routes, struct local_address *a)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&a->sa;
	unsigned destination, gateway, mask;
	char netdev[IFNAMSIZ];

	for (const char *at = routes; at && *at; at += strcspn(at, "\n"), at += *at == '\n') {
		if (sscanf(at, "%15s %x %x %*x %*d %*d %*d %x", netdev, &destination, &gateway, &mask) != 4 ||
		    gateway || !mask || (in->sin_addr.s_addr & mask) != destination ||
		    (a->mask && ntohl(mask) <= ntohl(a->mask)))
			continue;
		snprintf(a->netdev, sizeof(a->netdev), "%s", netdev);
		a->network = destination;
		a->mask = mask;
	}
}

/* Of several netdevs in one network the GID tables say whose an address is: entries of IPv4 are ::ffff:0a01:0001. */
static void find_by_gid(struct doctor *d, struct local_address *a)
{
	uint32_t host = ntohl(((const struct sockaddr_in *)&a->sa)->sin_addr.s_addr);
	char gid[64], wanted[64], ndev[IFNAMSIZ];

	snprintf(wanted, sizeof(wanted), "0000:0000:0000:0000:0000:ffff:%04x:%04x", host >> 16, host & 0xffff);
	for (unsigned i = 0; i < d->ports; i++) {
		const struct port *p = &d->port[i];
		char *names = look_names(&d->look, "/sys/class/infiniband/%s/ports/%u/gids", p->device, p->number);

		look_each(name, names)
		{
			look_line(&d->look, gid, sizeof(gid), "/sys/class/infiniband/%s/ports/%u/gids/%s", p->device,
				  p->number, name);
			if (strcmp(gid, wanted) != 0)
				continue;
			look_line(&d->look, ndev, sizeof(ndev), "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%s",
				  p->device, p->number, name);
			if (*ndev)
				snprintf(a->netdev, sizeof(a->netdev), "%s", ndev);
		}
		free(names);
	}
}

/* In fib_trie an address of this machine is a line "|-- ADDRESS", and then one "/32 host LOCAL". */
static void find_addresses_4(struct doctor *d)
{
	char *trie = look_text(&d->look, "/proc/net/fib_trie"), *routes = look_text(&d->look, "/proc/net/route");
	struct local_address last = {.text = ""};

	for (char *next = trie, *line; (line = strsep(&next, "\n"));) {
		const char *leaf = strstr(line, "|-- ");

		if (leaf)
			snprintf(last.text, sizeof(last.text), "%s", leaf + 4);
		if (leaf || !strstr(line, "/32 host LOCAL"))
			continue;
		struct local_address a = last;
		struct sockaddr_in *in = (struct sockaddr_in *)&a.sa;

		in->sin_family = AF_INET;
		if (inet_pton(AF_INET, a.text, &in->sin_addr) != 1)
			continue;
		if (address_is_loopback((const struct sockaddr *)in)) {
			snprintf(a.netdev, sizeof(a.netdev), "lo");
		} else {
			find_network(routes, &a);
			find_by_gid(d, &a);
		}
		add_address(d, &a);
	}
	free(trie);
	free(routes);
}

/* A line: 32 digits, index, prefix, scope, flags, netdev. */
static void find_addresses_6(struct doctor *d)
{
	char *text = look_text(&d->look, "/proc/net/if_inet6");

	for (char *next = text, *line; (line = strsep(&next, "\n"));) {
		struct local_address a = {.netdev = ""};
		struct sockaddr_in6 *in = (struct sockaddr_in6 *)&a.sa;
		unsigned word[4];

		if (sscanf(line, "%8x%8x%8x%8x %x %*x %*x %*x %15s", &word[0], &word[1], &word[2], &word[3],
			   &in->sin6_scope_id, a.netdev) != 6)
			continue;
		in->sin6_family = AF_INET6;
		for (unsigned i = 0; i < 4; i++)
			in->sin6_addr.s6_addr32[i] = htonl(word[i]);
		if (!IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr))
			in->sin6_scope_id = 0;
		inet_ntop(AF_INET6, &in->sin6_addr, a.text, sizeof(a.text));
		add_address(d, &a);
	}
	free(text);
}

bool address_is_rdma(const struct doctor *d, const struct local_address *address)
{
	for (unsigned i = 0; i < d->ports; i++)
		if (*address->netdev && strcmp(d->port[i].netdev, address->netdev) == 0)
			return true;
	return false;
}

/* Instances of the unit have files of their own: NAME.conf beside the keys. */
static void find_unit(struct doctor *d)
{
	static const char place[] = SYSCONFDIR "/rdmad/", end[] = ".conf";
	const char *name = config_file(d);
	size_t len;

	snprintf(d->unit, sizeof(d->unit), "rdmad");
	if (strncmp(name, place, strlen(place)) != 0)
		return;
	name += strlen(place);
	len = strlen(name);
	if (len > strlen(end) && len < sizeof(d->unit) && strcmp(name + len - strlen(end), end) == 0 &&
	    !strchr(name, '/'))
		snprintf(d->unit, sizeof(d->unit), "rdmad@%.*s", (int)(len - strlen(end)), name);
}

static bool find_user(struct doctor *d, uid_t *user)
{
	const char *const show[] = {"systemctl", "show", d->unit, "-p", "User", "-p", "LoadState", NULL};
	char name[64] = "", path[32];
	struct passwd *entry;
	struct stat st;
	const char *at;
	int status;
	char *text;

	snprintf(path, sizeof(path), "/proc/%lld", (long long)d->pid);
	if (d->pid && stat(path, &st) == 0) {
		*user = st.st_uid;
		return true;
	}
	text = look_program(&d->look, show, &status);
	at = text && status == 0 && strstr(text, "LoadState=loaded") ? strstr(text, "User=") : NULL;
	if (at)
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(at + strlen("User="), "\n"), at + strlen("User="));
	free(text);
	/* Ordinary users may not be told; the package makes this one for the unit. */
	if (!*name && geteuid() != 0 && (!d->file || strchr(d->unit, '@')))
		snprintf(name, sizeof(name), "rdmad");
	entry = *name ? getpwnam(name) : NULL;
	if (entry)
		*user = entry->pw_uid;
	return entry;
}

bool daemon_user(struct doctor *d, uid_t *user)
{
	if (!d->user_asked)
		d->user_known = find_user(d, &d->user);
	d->user_asked = true;
	if (d->user_known)
		*user = d->user;
	return d->user_known;
}

bool daemon_is_ours(struct doctor *d)
{
	uid_t user;

	return !d->live || geteuid() == 0 || !daemon_user(d, &user) || user == geteuid();
}

/* The running daemon; that there is none is no fault. Below a root it is what a bundle has of it. */
static void ask_daemon(struct doctor *d)
{
	static char own[128]; /* of an instance, whose directory systemd names */
	char path[128], *text;

	if (!d->live) {
		text = look_text(&d->look, STATUS_NAME);
		d->status = text ? json_loads(text, 0, NULL) : NULL;
		free(text);
		return;
	}
	if (!ctl.control && !getenv("RDMAD_CONTROL") && strchr(d->unit, '@') &&
	    config_value(d, "control.socket", path, sizeof(path)) && strcmp(path, "/run/rdmad/control.sock") == 0) {
		snprintf(own, sizeof(own), "/run/rdmad-%s/control.sock", strchr(d->unit, '@') + 1);
		ctl.control = own;
	}
	d->status = ctl_control_try("status");
	d->pid = json_integer_value(json_object_get(d->status, "pid"));
}

void facts_gather(struct doctor *d)
{
	char text[256];

	read_config(d);
	find_unit(d);
	d->wants_rdma = !config_value(d, "transports", text, sizeof(text)) || strstr(text, scheme_rdma);
	d->require_rdma = config_value(d, "require_rdma", text, sizeof(text)) && strcmp(text, "true") == 0;
	config_size(d, "kv.memory", &d->store, true);
	ask_daemon(d);
	find_ports(d);
	find_addresses_4(d);
	find_addresses_6(d);
	d->counters = counters_read(d);
}

void facts_release(struct doctor *d)
{
	free(d->config);
	json_decref(d->status);
	json_decref(d->counters);
	json_decref(d->paths);
	json_decref(d->there);
}

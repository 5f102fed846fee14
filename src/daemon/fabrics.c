/* fabrics.c: the providers of the fabric that this machine has. */
#include "daemon/daemon.h"
#include "base/thread.h"

#include <glob.h>
#include <ifaddrs.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sysexits.h>
#include <unistd.h>

#define RENEW_EVERY_MS 1000
#define FACTS_EVERY 3 /* of these turns */

static void keep_missing(struct daemon *d, const struct fabric_transport *transport, const char *address,
			 const char *reason, bool waits)
{
	struct missing *m;

	if (d->missings == MISSING_MAX)
		return;
	m = &d->missing[d->missings++];
	m->transport = transport;
	m->waits = waits;
	snprintf(m->address, sizeof(m->address), "%s", address);
	snprintf(m->reason, sizeof(m->reason), "%s", reason);
}

void fabrics_add_missing(struct daemon *d, const struct fabric_transport *transport, const char *address,
			 const char *reason, bool waits)
{
	for (unsigned i = 0; i < d->missings; i++)
		if (d->missing[i].transport == transport && strcmp(d->missing[i].address, address) == 0)
			return;
	keep_missing(d, transport, address, reason, waits);
	log_info("rdmad", "%s: missing%s%s: %s", transport->name, *address ? " on " : "", address, reason);
}

void fabrics_drop_missing(struct daemon *d, const struct fabric_transport *transport, const char *address)
{
	for (unsigned i = d->missings; i-- > 0;)
		if (d->missing[i].transport == transport && strcmp(d->missing[i].address, address) == 0)
			d->missing[i] = d->missing[--d->missings];
}

const char *fabrics_reason(const struct daemon *d, const struct fabric_transport *transport)
{
	for (unsigned i = 0; i < d->missings; i++)
		if (d->missing[i].transport == transport)
			return d->missing[i].reason;
	return "it is not among the transports";
}

static int fabric_make(struct daemon_fabric *f, const char *provider, const struct fabric_config *config)
{
	/* Listening completes nothing: few completions, no receives. */
	struct fabric_queue_attr attr = {.completions = 64};
	int rc = fabric_open(provider, config, &f->fabric);

	if (rc != 0)
		return rc;
	rc = fabric_domain_create(f->fabric, &f->domain);
	if (rc != 0)
		goto close;
	rc = fabric_queue_create(f->domain, &attr, &f->queue);
	if (rc != 0)
		goto destroy_domain;
	return 0;

destroy_domain:
	fabric_domain_destroy(f->domain);
close:
	fabric_close(f->fabric);
	return rc;
}

static int open_provider(struct daemon *d, const char *provider)
{
	uint64_t stall = d->config->stall_timeout;
	struct fabric_config config = {
		.device = d->config->device,
		.ack_timeout_ms = (uint32_t)(d->config->ack_timeout / TIME_MS),
		.stall_ms = stall ? (uint32_t)MAX(stall / TIME_MS, 1ul) : UINT32_MAX,
		.traffic_class = (uint8_t)d->config->traffic_class,
		.late = !d->options.test,
	};
	struct daemon_fabric *f = &d->fabric[d->fabrics];
	struct fabric_limits limits;
	char devices[256];
	int rc = fabric_make(f, provider, &config);

	if (rc != 0)
		return rc;
	d->fabrics++;
	fabric_limits(f->fabric, &limits);
	atomic_store(&f->devices, limits.devices);
	log_debug("rdmad", "%s: %s", provider, fabric_devices(f->fabric, devices, sizeof(devices)));
	return limits.devices ? 0 : -ENODEV;
}

/* Most machines lack the device: not an error, unless RDMA was required. It may come later. */
static int open_device(struct daemon *d, const struct fabric_transport *transport)
{
	char reason[256];
	int rc;

	log_hush_begin();
	rc = open_provider(d, fabric_transport_provider(transport));
	snprintf(reason, sizeof(reason), "%s", log_hush_end());
	if (rc == 0)
		return 0;
	if (!*reason)
		snprintf(reason, sizeof(reason), "%s", strerror(-rc));
	if (d->config->require_rdma && !transport->processor) {
		log_error("rdmad", "%s is required and missing: %s (RD-5003)", transport->text, reason);
		keep_missing(d, transport, "", reason, false); /* for a check, which goes on */
		return EX_UNAVAILABLE;
	}
	fabrics_add_missing(d, transport, "", reason, true);
	return 0;
}

static int open_transport(struct daemon *d, const struct fabric_transport *transport)
{
	int rc;

	if (transport->inside || !config_allows(d->config, transport) || fabrics_find(d, transport))
		return 0;
	if (transport->device)
		return open_device(d, transport);
	rc = open_provider(d, fabric_transport_provider(transport));
	if (rc != 0)
		return log_fail(daemon_exit_status(rc), "rdmad", "cannot open the transport %s: %s", transport->name,
				strerror(-rc));
	if (d->config->auth_encrypt == CONN_CLEAR || fabric_encrypts(d->fabric[d->fabrics - 1].fabric) == 0)
		return 0;
	if (d->config->auth_encrypt == CONN_REQUIRE)
		return log_fail(EX_UNAVAILABLE, "rdmad",
				"auth.encrypt is \"require\", and this kernel has no TLS: modprobe tls, or a kernel "
				"with CONFIG_TLS");
	log_warn("rdmad", "auth.encrypt is \"offer\", but nothing is encrypted: this kernel has no TLS; modprobe tls");
	return 0;
}

int fabrics_try(struct daemon *d)
{
	int rc = 0;

	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++) {
		int status = open_transport(d, &fabric_transports[i]);

		rc = rc ? rc : status;
	}
	return rc;
}

int fabrics_open(struct daemon *d)
{
	int rc = fabrics_try(d);

	if (rc != 0)
		fabrics_close(d);
	return rc;
}

void fabrics_close(struct daemon *d)
{
	for (unsigned n = d->fabrics + d->given_up; n > 0; n--) {
		struct daemon_fabric *f = &d->fabric[n - 1];

		fabric_queue_destroy(f->queue);
		fabric_domain_destroy(f->domain);
		fabric_close(f->fabric);
	}
	d->fabrics = d->given_up = 0;
}

static void *renew_run(void *arg)
{
	struct daemon *d = arg;
	struct pollfd stop = {.fd = d->renew.stop, .events = POLLIN};
	unsigned turns = 0;

	while (poll(&stop, 1, RENEW_EVERY_MS) == 0) {
		for (unsigned i = 0; i < d->fabrics; i++)
			atomic_store(&d->fabric[i].devices, fabric_renew(d->fabric[i].fabric));
		if (++turns % FACTS_EVERY == 0)
			facts_look(d);
	}
	return NULL;
}

void fabrics_tick(struct daemon *d)
{
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++) {
		const struct daemon_fabric *f = fabrics_find(d, &fabric_transports[i]);

		if (f && atomic_load(&f->devices))
			fabrics_drop_missing(d, &fabric_transports[i], "");
	}
}

int fabrics_renew_start(struct daemon *d)
{
	int rc;

	if (!fabrics_device(d))
		return 0;
	d->renew.stop = eventfd(0, EFD_CLOEXEC);
	rc = d->renew.stop < 0 ? -errno : thread_start(&d->renew.thread, "devices", renew_run, d);
	if (rc != 0)
		return log_fail(EX_OSERR, "rdmad", "cannot start a thread that looks for devices: %s", strerror(-rc));
	d->renew.runs = true;
	return 0;
}

void fabrics_renew_stop(struct daemon *d)
{
	if (!d->renew.runs)
		return;
	eventfd_write(d->renew.stop, 1);
	pthread_join(d->renew.thread, NULL);
	close(d->renew.stop);
	d->renew.runs = false;
}

bool fabrics_spoilt(const struct daemon *d)
{
	for (unsigned i = 0; i < d->fabrics; i++)
		if (*d->fabric[i].spoilt)
			return true;
	return false;
}

static int give_up(struct daemon *d, const struct daemon_fabric *f, const struct fabric_transport *transport)
{
	if (!transport->device)
		return log_fail(EX_OSERR, "rdmad", "cannot serve by %s: %s", transport->text, f->spoilt);
	if (d->config->require_rdma && !transport->processor)
		return log_fail(EX_UNAVAILABLE, "rdmad", "%s is required and cannot be served: %s (RD-5003)",
				transport->text, f->spoilt);
	log_warn("rdmad", "going on without %s: %s", transport->text, f->spoilt);
	fabrics_add_missing(d, transport, "", f->spoilt, false);
	return 0;
}

int fabrics_give_up(struct daemon *d)
{
	int rc = 0;

	for (unsigned i = d->fabrics; i-- > 0 && rc == 0;) {
		struct daemon_fabric f = d->fabric[i];

		if (!*f.spoilt)
			continue;
		for (unsigned t = 0; t < FABRIC_TRANSPORTS && rc == 0; t++)
			if (fabric_has(f.fabric, &fabric_transports[t]))
				rc = give_up(d, &f, &fabric_transports[t]);
		d->fabric[i] = d->fabric[--d->fabrics];
		d->fabric[d->fabrics] = f;
		d->given_up++;
	}
	return rc;
}

struct daemon_fabric *fabrics_find(struct daemon *d, const struct fabric_transport *transport)
{
	for (unsigned i = 0; i < d->fabrics; i++)
		if (fabric_has(d->fabric[i].fabric, transport))
			return &d->fabric[i];
	return NULL;
}

const struct daemon_fabric *fabrics_device(const struct daemon *d)
{
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		for (unsigned j = 0; j < d->fabrics && fabric_transports[i].device; j++)
			if (fabric_has(d->fabric[j].fabric, &fabric_transports[i]))
				return &d->fabric[j];
	return NULL;
}

unsigned fabrics_devices(const struct daemon *d)
{
	const struct daemon_fabric *f = fabrics_device(d);
	struct fabric_limits limits;

	if (!f)
		return 0;
	fabric_limits(f->fabric, &limits);
	return limits.devices;
}

/* Whether the network interface belongs to an RDMA device, by what the kernel says of its ports. */
static bool is_rdma_interface(const glob_t *ports, const char *interface)
{
	char name[64];

	for (size_t i = 0; i < ports->gl_pathc; i++) {
		FILE *in = fopen(ports->gl_pathv[i], "re");
		bool found = in && fgets(name, sizeof(name), in);

		if (in)
			fclose(in);
		name[found ? strcspn(name, "\n") : 0] = '\0';
		if (found && strcmp(name, interface) == 0)
			return true;
	}
	return false;
}

char *fabrics_rdma_addresses(char *buf, size_t size)
{
	struct ifaddrs *all = NULL;
	glob_t ports = {0};
	char text[64];

	buf[0] = '\0';
	if (getifaddrs(&all) != 0)
		return buf;
	glob("/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/0", 0, NULL, &ports);
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !is_rdma_interface(&ports, i->ifa_name))
			continue;
		address_format_socket(i->ifa_addr, text, sizeof(text));
		text[strcspn(text, ":")] = '\0';
		snprintf(buf + strlen(buf), size - strlen(buf), "%s\"%s\"", *buf ? ", " : "", text);
	}
	globfree(&ports);
	freeifaddrs(all);
	return buf;
}

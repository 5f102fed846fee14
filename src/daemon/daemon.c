/* daemon.c: what the parts share, and what signals do. */
#include "base/option.h"
#include "daemon/daemon.h"

#include <signal.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "config.h"

#define TICK TIME_S /* at least so often the services and the listeners look at the clock */

int daemon_exit_status(int error)
{
	switch (-error) {
	case 0:
		return 0;
	case EACCES:
	case EPERM:
		return EX_NOPERM;
	case ENODEV:
		return EX_UNAVAILABLE;
	case EINVAL:
		return EX_CONFIG;
	case EIO:
		return EX_IOERR;
	default:
		return EX_OSERR;
	}
}

/* In the background there is no stderr any more. */
static int open_log(const struct daemon *d, const struct config *c)
{
	bool lost = d->detached && strcmp(c->log_target, "stderr") == 0;

	return logging_open(lost ? "syslog" : c->log_target, (enum log_level)c->log_level,
			    (enum log_format)c->log_format);
}

static int test_config(struct daemon *d)
{
	int rc = access_open(d);

	if (rc == 0 && !d->options.offline)
		rc = check_machine(d);
	access_close(d);
	if (rc == 0)
		log_info("config", "%s: no errors", d->options.config ? d->options.config : "the defaults");
	return rc;
}

int daemon_configure(struct daemon *d)
{
	int rc;

	d->started = time_now();
	d->started_at = d->configured_at = time(NULL);
	if (!d->options.config && access(SYSCONFDIR "/rdmad.conf", F_OK) == 0)
		d->options.config = SYSCONFDIR "/rdmad.conf";
	/* In the background the working directory is another. */
	if (d->options.config && d->options.config[0] != '/') {
		d->config_path = realpath(d->options.config, NULL);
		if (d->config_path)
			d->options.config = d->config_path;
	}
	rc = config_load(d->options.config, &d->options.overrides, &d->config);
	if (rc == 0 && d->options.print) {
		config_print(d->config, stdout);
		rc = option_printed("rdmad") ? 0 : EX_IOERR;
	} else if (rc == 0 && d->options.test)
		rc = test_config(d);
	else if (rc == 0)
		rc = open_log(d, d->config);
	return rc;
}

void daemon_unconfigure(struct daemon *d)
{
	logging_close();
	config_free(d->config);
	free(d->config_path);
}

bool daemon_serves(const struct daemon *d, enum wire_service service)
{
	return d->config->services & (1ull << service);
}

/* That the services may have beside those of their connections. */
static unsigned count_descriptors(const struct daemon *d)
{
	unsigned n = 0;

	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		const struct service *service = service_find(id);

		if (service && service->descriptors && daemon_serves(d, id))
			n += service->descriptors(d->config->service[id]);
	}
	return n;
}

int daemon_process_start(struct daemon *d)
{
	int rc = process_leave_1();

	signal(SIGPIPE, SIG_IGN);
	if (rc == 0 && d->options.daemonize)
		rc = process_daemonize();
	d->connections_asked = d->config->max_connections;
	if (rc == 0)
		rc = process_limits(&d->config->max_connections, workers_count(d->config), count_descriptors(d));
	if (rc == 0 && d->config->pid_file)
		rc = process_pid_file_create(d->config->pid_file);
	return rc;
}

void daemon_process_stop(struct daemon *d)
{
	if (d->config->pid_file)
		process_pid_file_remove(d->config->pid_file);
}

static void end_requested(void *arg)
{
	daemon_end(arg);
}

static void hung_up(void *arg)
{
	struct reloaded told;

	daemon_reload(arg, &told);
}

static void asked_for_status(void *arg)
{
	status_gather(arg, false, 0, status_log, NULL);
}

/* Until clients come there is nothing to bring to an end: SIGTERM and SIGINT then have their default action, and a
 * start that takes long, because of much memory, is ended at once. */
static const struct {
	int number;
	loop_fn fn;
	bool start; /* held until the start is over */
} signals[] = {
	{SIGHUP, hung_up, true},
	{SIGUSR1, asked_for_status, true},
	{SIGTERM, end_requested, false},
	{SIGINT, end_requested, false},
};

static int add_signals(struct daemon *d, bool start)
{
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		if (signals[i].start != start)
			continue;
		d->signal[i] = loop_add_signal(d->loop, signals[i].number, signals[i].fn, d);
		if (!d->signal[i])
			return EX_OSERR;
	}
	return 0;
}

int daemon_signals_start(struct daemon *d)
{
	return add_signals(d, false);
}

static void main_woken(void *arg)
{
	struct daemon *d = arg;

	must(daemon_is_main(d));
	workers_collect(d);
	metrics_turn(d);
	daemon_drained(d);
	mover_turn(d);
	if (atomic_exchange(&d->look, false))
		engine_look(d);
	if (atomic_load(&d->fatal))
		loop_break(d->loop);
}

/* Also the clock of requests that were begun and never completed. */
static void daemon_tick(void *arg)
{
	struct daemon *d = arg;
	uint64_t now = time_now(), next = service_shared_tick(&d->shared, now);

	must(daemon_is_main(d));
	next = MIN(MAX(next, now + TIME_MS), now + TICK);
	for (unsigned i = 0; i < d->fabrics; i++)
		listeners_progress(&d->fabric[i]);
	listeners_tick(d);
	streams_tick(d);
	metrics_turn(d);
	daemon_drained(d);
	loop_set_timer(d->tick, next - now);
}

static void drain_timed_out(void *arg)
{
	struct daemon *d = arg;

	log_warn("rdmad", "cut off what did not come to rest in time: connections %llu",
		 (unsigned long long)workers_load(d));
	loop_break(d->loop);
}

int daemon_loop_start(struct daemon *d)
{
	int rc = loop_create(&d->loop);

	if (rc != 0)
		return EX_OSERR;
	loop_on_wake(d->loop, main_woken, d);
	if (add_signals(d, true) != 0)
		goto stop;
	d->tick = loop_add_timer(d->loop, daemon_tick, d);
	d->drain_timer = loop_add_timer(d->loop, drain_timed_out, d);
	if (!d->tick || !d->drain_timer)
		goto stop;
	loop_set_timer(d->tick, TICK);
	return 0;

stop:
	daemon_loop_stop(d);
	return EX_OSERR;
}

void daemon_loop_stop(struct daemon *d)
{
	loop_remove(d->drain_timer);
	loop_remove(d->tick);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		loop_remove(d->signal[i]);
	loop_destroy(d->loop);
}

#define BUSY_EXTENSION "EXTEND_TIMEOUT_USEC=30000000" /* until its next report */

static void service_is_busy(void *arg, const char *with)
{
	char state[160];

	(void)arg;
	snprintf(state, sizeof(state), "STATUS=%s\n" BUSY_EXTENSION, with);
	notify_send(state);
}

/* Any thread. */
static void service_is_fatal(void *arg, int error)
{
	struct daemon *d = arg;

	atomic_store(&d->fatal, error);
	loop_wake(d->loop);
}

/* Any thread. */
static void look_soon(void *arg)
{
	struct daemon *d = arg;

	atomic_store(&d->look, true);
	loop_wake(d->loop);
}

static void tick_soon(void *arg)
{
	struct daemon *d = arg;

	must(daemon_is_main(d));
	if (d->tick)
		loop_set_timer(d->tick, 0);
}

int daemon_services_start(struct daemon *d)
{
	struct fabric_domain *domain[FABRICS_MAX];
	struct service_host host = {.domain = domain,
				    .domains = d->fabrics,
				    .connections = d->config->max_connections,
				    .poll = workers_polling(d),
				    .facts = facts_tell,
				    .busy = service_is_busy,
				    .fatal = service_is_fatal,
				    .soon = tick_soon,
				    .look = look_soon,
				    .arg = d};
	int rc;

	must(daemon_is_main(d));
	for (unsigned i = 0; i < d->fabrics; i++)
		domain[i] = d->fabric[i].domain;
	if (service_slow_create(&d->slow) != 0)
		return EX_OSERR;
	pthread_mutex_init(&d->facts.lock, NULL);
	facts_look(d);
	service_slow_set(d->slow, d->config->slow, d->config->slow_keys);
	rc = service_shared_open(&d->shared, &host, d->config->services, d->config->service);
	if (rc != 0) {
		service_slow_destroy(d->slow);
		d->slow = NULL;
	}
	return daemon_exit_status(rc);
}

void daemon_services_stop(struct daemon *d)
{
	must(daemon_is_main(d));
	service_shared_close(&d->shared);
	service_slow_destroy(d->slow);
	d->slow = NULL;
}

int daemon_ready(struct daemon *d)
{
	char state[64];
	int rc;

	logging_echo(false);
	d->detached = d->options.daemonize;
	if (d->detached)
		open_log(d, d->config);
	rc = logging_start();
	if (rc != 0)
		return rc;
	log_info("rdmad", "ready, workers %u", d->workers);
	snprintf(state, sizeof(state), "READY=1\nSTATUS=ready\nX_RDMAD_PORT=%u", listeners_port(d));
	notify_send(state);
	metrics_tell(d, METRICS_READY);
	process_ready();
	return 0;
}

void daemon_drain(struct daemon *d)
{
	must(daemon_is_main(d));
	if (d->draining)
		return;
	log_info("rdmad", "draining: no new connections; there are %llu", (unsigned long long)workers_load(d));
	notify_send("STATUS=draining: no new connections");
	d->draining = true;
	metrics_tell(d, METRICS_DRAINING);
	workers_tell(d, WORKER_LEAVE);
}

void daemon_end(struct daemon *d)
{
	must(daemon_is_main(d));
	if (d->ending) {
		log_warn("rdmad", "ending at once");
		loop_break(d->loop);
		return;
	}
	daemon_drain(d);
	d->ending = true;
	notify_send("STOPPING=1");
	workers_tell(d, WORKER_DRAIN);
	loop_set_timer(d->drain_timer, d->config->drain_timeout);
	daemon_drained(d);
}

void daemon_drained(struct daemon *d)
{
	must(daemon_is_main(d));
	if (d->ending && workers_load(d) == 0)
		loop_break(d->loop);
}

struct reload {
	struct daemon *daemon;
	struct reloaded *told;
};

static void setting_changed(void *arg, const char *path, bool restart)
{
	struct reload *r = arg;
	char *lines = restart ? r->told->restart : r->told->changed;
	size_t n = strlen(lines);

	if (restart)
		log_warn("config", "%s changed in the file, and needs a restart", path);
	else
		log_info("config", "%s changed", path);
	snprintf(lines + n, sizeof(r->told->changed) - n, "%s%s", n ? "\n" : "", path);
}

/* Keep what a setting that may change asks for, and cannot have without a restart, as it is. */
static void hold_back(struct reload *r, struct config *fresh)
{
	struct daemon *d = r->daemon;
	uint64_t held = 0;

	if (fresh->max_connections == d->connections_asked) {
		fresh->max_connections = d->connections_fit; /* to which it was lowered at the start */
	} else if (fresh->max_connections > d->connections_fit) {
		setting_changed(r, "max_connections", true);
		fresh->max_connections = d->config->max_connections;
	}
	for (unsigned id = 0; id < WIRE_SERVICES; id++) {
		/* One that could not be offered at the start is no news. */
		if (!(fresh->services & 1ull << id) || service_is_open(&d->shared, id) || daemon_serves(d, id))
			continue;
		held |= 1ull << id;
	}
	if (held)
		setting_changed(r, "services", true);
	fresh->services &= ~held;
}

/* Read the file, and the keys and rights, again. Behind the log's target come the files of services: what may fail is
 * over then, and *changed is one of them that has changed, or NULL. */
static int read_again(struct daemon *d, struct config **out, struct auth_table **access, const char **changed)
{
	struct config *fresh;

	if (config_load(d->options.config, &d->options.overrides, &fresh) != 0)
		return -EINVAL;
	if (access_load(fresh, access) != 0) {
		config_free(fresh);
		return -EINVAL;
	}
	if ((listeners_exposed(d) && !access_may_expose(fresh, *access, listeners_exposed(d))) ||
	    open_log(d, fresh) != 0) {
		auth_table_put(*access);
		config_free(fresh);
		return -EINVAL;
	}
	if (service_shared_reload(&d->shared, changed) != 0) {
		open_log(d, d->config);
		auth_table_put(*access);
		config_free(fresh);
		return -EINVAL;
	}
	*out = fresh;
	return 0;
}

int daemon_reload(struct daemon *d, struct reloaded *told)
{
	struct reload r = {d, told};
	struct auth_table *access;
	const char *changed;
	struct config *fresh;
	int rc;

	must(daemon_is_main(d));
	*told = (struct reloaded){0};
	if (d->ending)
		return -ESHUTDOWN;
	notify_send("RELOADING=1");
	logging_gather(told->reasons, sizeof(told->reasons));
	rc = read_again(d, &fresh, &access, &changed);
	logging_gather(NULL, 0);
	d->reload_failed = rc != 0;
	if (rc == 0) {
		d->configured_at = time(NULL);
		hold_back(&r, fresh);
		config_merge(d->config, fresh, setting_changed, &r);
		if (changed)
			setting_changed(&r, changed, false);
		service_slow_set(d->slow, d->config->slow, d->config->slow_keys);
		workers_tell(d, WORKER_SETTINGS);
		access_replace(d, access);
		config_free(fresh);
		log_info("config", "reloaded");
	} else {
		log_error("config", "nothing was changed");
	}
	notify_send("READY=1");
	return rc;
}

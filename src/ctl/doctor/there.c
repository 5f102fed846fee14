/*
 * there.c: what a host tells of itself, by the operation FACTS of the service ping, beside what this machine is. It is
 * a text of lines, which the library has checked: "NAME VALUE", and "port DEVICE NUMBER NAME=VALUE ..." for each port.
 */
#include "ctl/doctor/doctor.h"
#include "rdmad/ping.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define CLOCK_FAR ((int64_t)1000000) /* us */
#define FRAME_BESIDE 104u            /* bytes of a frame beside the packet of RoCE: 4200 hold one of 4096 */

static const char bundled[] = "/programs/there";

static int64_t clock_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* What is not "NAME=VALUE" is passed over, as of a later version. */
static json_t *port_json(char *line)
{
	char *device = strsep(&line, " "), *number = strsep(&line, " ");
	json_t *port = json_pack("{s:s, s:I}", "device", device, "number", (json_int_t)(number ? atoi(number) : 0));

	for (char *word; (word = strsep(&line, " "));) {
		char *value = strchr(word, '=');

		if (!value)
			continue;
		*value = '\0';
		json_object_set_new(port, word, json_string(value + 1));
	}
	return port;
}

static json_t *facts_json(char *text)
{
	json_t *facts = json_object(), *ports = json_array();

	for (char *line; (line = strsep(&text, "\n"));) {
		char *name = strsep(&line, " ");

		if (!line)
			continue;
		if (strcmp(name, "port") == 0)
			json_array_append_new(ports, port_json(line));
		else
			json_object_set_new(facts, name, json_string(line));
	}
	json_object_set_new(facts, "ports", ports);
	return facts;
}

static const char *fact_text(const json_t *facts, const char *name)
{
	const char *text = json_string_value(json_object_get(facts, name));

	return text ? text : "";
}

/* From 0 on: what is less, or no number, is 0. */
static int64_t fact_number(const json_t *facts, const char *name)
{
	int64_t number = strtoll(fact_text(facts, name), NULL, 10);

	return MAX(number, 0);
}

void there_ask(struct doctor *d, struct rdmad_ping *ping, const char *host)
{
	const char *before = d->check;
	char text[RDMAD_PING_FACTS_MAX + 1];
	int64_t asked = clock_us(), answered;
	int rc;

	if (d->there)
		return;
	d->check = "D41";
	log_hush_begin();
	rc = rdmad_ping_facts(ping, text, sizeof(text));
	log_hush_end();
	answered = clock_us();
	if (rc == 0 && d->look.into)
		bundle_add(d->look.into, bundled, text, strlen(text));
	if (rc == 0)
		d->there = facts_json(text);
	else
		finding_add(d,
			    rc == -EOPNOTSUPP ? 4101
			    : rc == -EACCES   ? 4102
					      : 4103,
			    NULL, "%s: %s", host, rdmad_error());
	if (rc == 0) {
		int64_t off = fact_number(d->there, "clock_us");

		off = off < asked ? off - asked : off > answered ? off - answered : 0;
		if (off < -CLOCK_FAR || off > CLOCK_FAR)
			finding_add(d, 4105, NULL, "the clock of %s is %.1f s %s", host, (double)llabs(off) / 1e6,
				    off < 0 ? "behind" : "ahead");
	} else {
		d->there = json_object(); /* asked once */
	}
	d->check = before;
}

void there_read(struct doctor *d)
{
	char *text = look_text(&d->look, "%s", bundled);

	if (text)
		d->there = facts_json(text);
	free(text);
}

/* `gids`: with commas between. */
static bool has_gid(const char *gids, const char *gid)
{
	size_t len = strlen(gid);

	for (size_t n; *gids; gids += n + (gids[n] == ',')) {
		n = strcspn(gids, ",");
		if (n && n == len && memcmp(gids, gid, len) == 0)
			return true;
	}
	return false;
}

/* The port there that the way ends at, else the only one. */
static const json_t *port_there(const struct doctor *d, const struct cm_way *way)
{
	const json_t *ports = json_object_get(d->there, "ports");
	json_t *port;
	size_t i;

	json_array_foreach(ports, i, port)
	{
		if (has_gid(fact_text(port, "gids"), way->to_gid))
			return port;
	}
	return json_array_size(ports) == 1 ? json_array_get(ports, 0) : NULL;
}

static const struct port *port_here(const struct doctor *d, const struct cm_way *way)
{
	for (unsigned i = 0; i < d->ports; i++)
		if (strcmp(d->port[i].device, way->device) == 0 && d->port[i].number == way->port)
			return &d->port[i];
	return d->ports == 1 ? &d->port[0] : NULL;
}

/* The end whose packets are shorter is to be mended. */
static void judge_mtu(struct doctor *d, const char *host, const struct port *here, const json_t *there)
{
	unsigned mtu_here = port_mtu(d, here), mtu_there = (unsigned)fact_number(there, "mtu");
	const char *netdev = mtu_here < mtu_there ? here->netdev : fact_text(there, "netdev");
	char bytes[16];

	if (!mtu_here || !mtu_there || mtu_here == mtu_there)
		return;
	snprintf(bytes, sizeof(bytes), "%u", MAX(mtu_here, mtu_there) + FRAME_BESIDE);
	finding_add(d, mtu_here < mtu_there ? 4108 : 4109, NAMES("IF", *netdev ? netdev : NULL, "BYTES", bytes),
		    "%s port %u here %u B, %s port %d of %s %u B", here->device, here->number, mtu_here,
		    fact_text(there, "device"), (int)json_integer_value(json_object_get(there, "number")), host,
		    mtu_there);
}

static void judge_port(struct doctor *d, const char *host, const struct port *here, const json_t *there)
{
	const char *state = fact_text(there, "state"), *netdev = fact_text(there, "netdev"),
		   *device = fact_text(there, "device");
	bool ethernet = strcmp(fact_text(there, "link"), "ethernet") == 0;

	if (strcmp(state, "active") != 0) {
		finding_add(d, 4107, NAMES("IF", *netdev ? netdev : NULL, "DEV", device), "%s of %s is %s", device,
			    host, state);
		return;
	}
	if (ethernet && fact_number(there, "roce_2") == 0)
		finding_add(d, 4111, NAMES("DEV", device, "IF", *netdev ? netdev : NULL), "%s of %s", device, host);
	if (!here)
		return;
	if (here->ethernet != ethernet)
		finding_add(d, 4110, NULL, "%s here has %s, %s of %s has %s", here->device,
			    here->ethernet ? "ethernet" : "infiniband", device, host, fact_text(there, "link"));
	else
		judge_mtu(d, host, here, there);
}

void there_judge(struct doctor *d, const char *host, const struct cm_way *way)
{
	int64_t limit = fact_number(d->there, "memlock_bytes"), need = fact_number(d->there, "registered_bytes");
	const json_t *there = port_there(d, way);
	char have[32], wanted[32];

	if (!json_object_get(d->there, "ports"))
		return;
	if (strcmp(fact_text(d->there, "version"), rdmad_version()) != 0)
		finding_add(d, 4104, NULL, "here %s, %s has %s", rdmad_version(), host, fact_text(d->there, "version"));
	if (json_object_get(d->there, "memlock_bytes") && limit < need)
		finding_add(d, 4106, NULL, "%s: limit %s, rdmad registers up to %s", host,
			    units_human_size((double)limit, have), units_human_size((double)need, wanted));
	if (d->wants_rdma && d->ports && json_array_size(json_object_get(d->there, "ports")) == 0)
		finding_add(d, 4112, NULL, "%s", host);
	if (d->wants_rdma && there)
		judge_port(d, host, port_here(d, way), there);
}

void there_print(const struct doctor *d)
{
	json_t *port;
	size_t i;

	json_array_foreach(json_object_get(d->there, "ports"), i, port)
	{
		const char *name;
		json_t *value;
		char line[1024];

		printf("there: %s", log_printable(fact_text(port, "device"), line, sizeof(line)));
		json_object_foreach(port, name, value)
		{
			if (json_is_string(value) && strcmp(name, "device") != 0)
				printf(" %s=%s", name, log_printable(json_string_value(value), line, sizeof(line)));
		}
		putchar('\n');
	}
}

/*
 * metrics.h: numbers for a monitoring system. table.c has each metric once; the text that is scraped, rdmactl metrics,
 * the table of rdmad-metrics(7) and the dashboard come from there. The numbers are those of the answers status, memory
 * and resources, and what gather.c puts beside them: none is counted twice.
 */
#ifndef RDMAD_DAEMON_METRICS_METRICS_H
#define RDMAD_DAEMON_METRICS_METRICS_H

#include "daemon/daemon.h"

#include <jansson.h>

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

/* Where numbers are in what metrics_gather() made. Of a histogram there is an object: "first", the bound of the first
 * bucket, which doubles from one to the next; "counts" of the buckets, the last without a bound; "sum". */
struct metric_source {
	const char *values; /* of the first labels, separated by commas; "": none of them is fixed */
	/* Names of members, separated by dots; a "*" is each member, whose name is the next label's value. */
	const char *path;
};

struct metric {
	const char *name; /* ends with the unit, if it has one; of a counter "_total" follows */
	enum metric_type type;
	const char *labels;
	const char *help;
	double scale; /* of the numbers, into the unit; 0: they are in it */
	const struct metric_source *from;
};

extern const struct metric metrics[];
extern const size_t metrics_count;

/* gather.c: all that a text is made of. Main thread. While the daemon starts there is little. */
json_t *metrics_gather(const struct status *status);
json_t *metrics_gather_start(const struct daemon *daemon);

/* ports.c: add what the kernel knows of the devices' ports. Any thread. */
void metrics_add_ports(json_t *from);

/* text.c: the text of it, free() it; NULL: no memory. Any thread. `open`: as OpenMetrics. */
char *metrics_text(json_t *from, bool open, size_t *length);

#endif

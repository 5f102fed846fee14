/* ports.c: what the kernel knows of the ports of RDMA devices. It may have to ask the device, which can take long. */
#include "daemon/metrics/metrics.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>

#define SYSTEM "/sys/class/infiniband"

/* Drivers have names of their own for the same. */
static const struct {
	const char *file, *kind;
} counters[] = {
	{"out_of_sequence", "out_of_sequence"},
	{"out_of_seq_request", "out_of_sequence"},
	{"packet_seq_err", "sequence_error"},
	{"rcvd_seq_err", "sequence_error"},
	{"local_ack_timeout_err", "ack_timeout"},
	{"completer_retry_err", "ack_timeout"},
	{"rnr_nak_retry_err", "rnr"},
	{"rcvd_rnr_err", "rnr"},
	{"rp_cnp_handled", "cnp_received"},
	{"np_cnp_sent", "cnp_sent"},
};

/* The first line of a port's file. False: there is none. */
static bool read_line(const char *port, const char *file, char *line, size_t size)
{
	char path[PATH_MAX];
	bool got;
	FILE *in;

	snprintf(path, sizeof(path), "%s/%s", port, file);
	in = fopen(path, "re");
	got = in && fgets(line, (int)size, in);
	if (in)
		fclose(in);
	return got;
}

static json_t *port_json(const char *path)
{
	json_t *o = json_object(), *retries = json_object();
	char line[64], file[64];

	/* "4: ACTIVE" */
	if (read_line(path, "state", line, sizeof(line)))
		json_object_set_new(o, "up", json_integer(atoi(line) == 4));
	for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
		snprintf(file, sizeof(file), "hw_counters/%s", counters[i].file);
		if (read_line(path, file, line, sizeof(line)))
			json_object_set_new(retries, counters[i].kind, json_integer(strtoll(line, NULL, 10)));
	}
	json_object_set_new(o, "retries", retries);
	return o;
}

static json_t *device_json(const char *device)
{
	json_t *o = json_object();
	char path[PATH_MAX], port[PATH_MAX + NAME_MAX + 2];
	const struct dirent *entry;
	DIR *ports;

	snprintf(path, sizeof(path), SYSTEM "/%s/ports", device);
	ports = opendir(path);
	while (ports && (entry = readdir(ports))) {
		if (*entry->d_name == '.')
			continue;
		snprintf(port, sizeof(port), "%s/%s", path, entry->d_name);
		json_object_set_new(o, entry->d_name, port_json(port));
	}
	if (ports)
		closedir(ports);
	return o;
}

void metrics_add_ports(json_t *from)
{
	const char *names = json_string_value(json_object_get(from, "devices"));
	json_t *o = json_object();
	char device[64];

	while (names && *names) {
		size_t n = strcspn(names, ", ");

		snprintf(device, sizeof(device), "%.*s", (int)n, names);
		if (*device)
			json_object_set_new(o, device, device_json(device));
		names += n + strspn(names + n, ", ");
	}
	json_object_set_new(from, "ports", o);
}

/* doctor.c: the table of checks, the findings, and how they are told. */
#include "ctl/doctor/doctor.h"

#include <ctype.h>
#include <stdlib.h>

static bool strict;
static const char *root, *file, *bundle_path;

static const struct ctl_option doctor_options[] = {
	{"strict", 0, CTL_FLAG, &strict, NULL, "exit status 1 where there are warnings"},
	{"config", 'c', CTL_TEXT, &file, "FILE", "configuration of the daemon; default as rdmad's", .choices = "@file"},
	{"bundle", 0, CTL_TEXT, &bundle_path, "FILE", "write a tar of what was looked at, for a report",
	 .choices = "@file"},
	{"root", 0, CTL_TEXT, &root, "DIR", "look at /sys, /proc, /etc below DIR, of an unpacked bundle for instance",
	 .choices = "@file"},
	{NULL},
};

/* What each looks at, in the order of the report. */
static const struct check {
	const char *id;
	void (*look)(struct doctor *d);
	bool tries; /* it tries things, and so is of no use below a root */
	bool late;  /* behind what is done towards a host */
	const char *what;
} checks[] = {
	{"D01", check_modules, false, false, "kernel modules of RDMA, and whether they have a device"},
	{"D02", check_nodes, false, false, "/dev/infiniband, and whether this user may open it"},
	{"D03", check_provider, true, false, "libraries of the devices"},
	{"D04", check_state, false, false, "state of the ports"},
	{"D05", check_rate, false, false, "rate of the ports, PCIe link of the devices"},
	{"D06", check_listen, false, false, "addresses of RDMA against listen"},
	{"D07", check_gids, false, false, "GID tables: a RoCE v2 entry of an address"},
	{"D08", check_self, true, false, "rdma_cm towards this machine's own addresses"},
	{"D09", check_neighbours, false, false, "several devices in one subnet"},
	{"D10", check_namespace, false, false, "network namespaces of devices"},
	{"D11", check_mtu, false, false, "MTU of RDMA against that of the network interface"},
	{"D12", check_memlock, false, false, "locked memory of this shell, the unit, the daemon"},
	{"D13", check_register, true, false, "registering memory"},
	{"D14", check_maps, false, false, "memory mappings of a process"},
	{"D15", check_pages, false, false, "memory, and huge pages"},
	{"D16", check_numa, false, false, "NUMA: nodes of devices and processors of the daemon"},
	{"D17", check_groups, false, false, "limits of control groups"},
	{"D18", check_governor, false, false, "clock of the processors"},
	{"D19", check_flow, false, false, "flow control of Ethernet: PFC, ECN"},
	{"D20", check_counters, false, true, "counters of errors of the ports"},
	{"D21", check_iommu, false, false, "IOMMU and PCIe between GPUs and devices"},
	{"D22", check_gpus, false, false, "GPUs, their driver and library"},
	{"D23", check_direct, false, false, "RDMA of GPU memory"},
	{"D24", check_firewall, false, false, "rules of the firewall"},
	{"D25", check_port, false, false, "whether another program has the port"},
	{"D26", check_config, false, false, "configuration"},
	{"D27", check_clock, true, false, "clock"},
	{"D28", check_log, true, false, "directory of the log"},
	{"D29", check_keys, false, false, "files of keys"},
	{"D30", check_sandbox, false, false, "sandbox of gpu sessions, and what it denied"},
	{"D31", check_kernel, false, false, "errors of devices in the kernel's log"},
	{"D32", check_cluster, false, false, "table of the cluster, and whether its nodes are reached"},
};

/*
 * Findings.
 */

/* What a name in capitals stands for. NULL: itself, as what it stands for is unknown. */
static const char *name_value(const char *const *names, const char *word, size_t len)
{
	for (; names && names[0] && names[1]; names += 2)
		if (strlen(names[0]) == len && memcmp(names[0], word, len) == 0)
			return *names[1] ? names[1] : NULL;
	return NULL;
}

/* A name may come from another machine: it stays a word of the command, whatever the shell makes of its characters. */
static void put_word(FILE *out, const char *value)
{
	for (; *value; value++)
		fputc(strchr(";&|`$<>()'\"\\\n", *value) ? '_' : *value, out);
}

/* The command of a row, for this machine. free() it. */
static char *fill_in(const char *mend, const char *const *names)
{
	char *text = NULL;
	size_t size, len;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (; *mend; mend += len) {
		const char *value;

		for (len = 0; isupper((unsigned char)mend[len]);)
			len++;
		value = len ? name_value(names, mend, len) : NULL;
		len = len ? len : 1;
		if (value)
			put_word(out, value);
		else
			fwrite(mend, 1, len, out);
	}
	fclose(out);
	return text;
}

void finding_add(struct doctor *d, unsigned number, const char *const *names, const char *format, ...)
{
	struct finding found = {.row = error_find(number), .check = d->check};
	struct finding *more = d->finding;
	va_list args;

	must(found.row);
	if (d->findings == d->room) {
		more = realloc(d->finding, (d->room + 32) * sizeof(*more));
		d->room += more ? 32 : 0;
	}
	va_start(args, format);
	if (!more || vasprintf(&found.figures, format, args) < 0)
		found.figures = NULL;
	va_end(args);
	d->finding = more ? more : d->finding;
	found.mend = fill_in(found.row->mend, names);
	d->lost |= !found.figures || !found.mend;
	if (!found.figures || !found.mend) {
		free(found.figures);
		free(found.mend);
		return;
	}
	d->finding[d->findings++] = found;
}

static enum severity severity_of(const struct doctor *d, const struct finding *f)
{
	if (f->row->severity != SEVERITY_RDMA)
		return f->row->severity;
	if (!d->wants_rdma)
		return SEVERITY_NOTE;
	return d->require_rdma ? SEVERITY_FAILURE : SEVERITY_WARNING;
}

static unsigned count_findings(const struct doctor *d, enum severity severity)
{
	unsigned n = 0;

	for (size_t i = 0; i < d->findings; i++)
		n += severity_of(d, &d->finding[i]) == severity;
	return n;
}

/*
 * The report.
 */
static json_t *findings_json(const struct doctor *d)
{
	json_t *array = json_array();

	for (size_t i = 0; i < d->findings; i++) {
		const struct finding *f = &d->finding[i];

		json_array_append_new(array,
				      json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s}", "check", f->check, "id",
						json_sprintf(CTL_ERROR_ID, f->row->number), "severity",
						severity_name(severity_of(d, f)), "what", f->row->what, "figures",
						f->figures, "cause", f->row->cause, "command", f->mend));
	}
	return array;
}

/* The worst that a check found: "fine", or where it was not made "not checked". */
static const char *verdict_of(const struct doctor *d, const struct check *check)
{
	int worst = -1;

	for (size_t i = 0; i < d->findings; i++)
		if (strcmp(d->finding[i].check, check->id) == 0)
			worst = MAX(worst, (int)severity_of(d, &d->finding[i]));
	if (check->tries && !d->live)
		return "not checked";
	return worst < 0 ? "fine" : severity_name((enum severity)worst);
}

static json_t *report_json(const struct doctor *d)
{
	json_t *array = json_array(), *o;

	for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
		json_array_append_new(array, json_pack("{s:s, s:s, s:s}", "check", checks[i].id, "verdict",
						       verdict_of(d, &checks[i]), "looks_at", checks[i].what));
	o = json_pack("{s:s, s:i, s:i, s:i, s:o, s:o}", "command", "doctor", "failures",
		      count_findings(d, SEVERITY_FAILURE), "warnings", count_findings(d, SEVERITY_WARNING), "notes",
		      count_findings(d, SEVERITY_NOTE), "findings", findings_json(d), "checks", array);
	if (d->paths)
		json_object_set(o, "paths", d->paths);
	if (d->there)
		json_object_set(o, "there", d->there);
	return o;
}

static void print_text(const struct doctor *d)
{
	unsigned skipped = 0;

	for (size_t i = 0; i < d->findings; i++) {
		const struct finding *f = &d->finding[i];
		char line[1024];

		printf("%s %s " CTL_ERROR_ID ": %s: %s\n", f->check, severity_name(severity_of(d, f)), f->row->number,
		       f->row->what, log_printable(f->figures, line, sizeof(line)));
		words_row(stdout, "cause", 9, f->row->cause);
		printf("  mend   %s\n", log_printable(f->mend, line, sizeof(line)));
	}
	if (d->paths)
		far_print(d);
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
		skipped += checks[i].tries && !d->live;
	printf("%zu checks: failures %u, warnings %u, notes %u", ARRAY_SIZE(checks) - skipped,
	       count_findings(d, SEVERITY_FAILURE), count_findings(d, SEVERITY_WARNING),
	       count_findings(d, SEVERITY_NOTE));
	if (skipped)
		printf("; %u were not made: they try things, of which a root has none", skipped);
	putchar('\n');
}

static int print_report(struct doctor *d)
{
	int rc = CTL_OK;

	if (ctl.json)
		rc = ctl_json_print(report_json(d));
	else
		print_text(d);
	if (d->lost) {
		ctl_say("doctor: no memory: the report is not complete");
		return CTL_FAILED;
	}
	if (rc == CTL_OK && count_findings(d, SEVERITY_FAILURE)) {
		ctl_say("doctor: there are failures; the findings say what mends them");
		return CTL_USAGE;
	}
	if (rc == CTL_OK && strict && count_findings(d, SEVERITY_WARNING)) {
		ctl_say("doctor: there are warnings");
		return CTL_FAILED;
	}
	return rc;
}

static void bundle_json(struct bundle *bundle, const char *name, const json_t *json)
{
	char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;

	if (text)
		bundle_add(bundle, name, text, strlen(text));
	free(text);
}

static int close_bundle(const struct doctor *d)
{
	json_t *report = report_json(d);
	int rc;

	bundle_json(d->look.into, "report.json", report);
	bundle_json(d->look.into, STATUS_NAME, d->status);
	json_decref(report);
	rc = bundle_close(d->look.into);
	if (rc != 0) {
		ctl_say("doctor: writing %s: %s", bundle_path, strerror(-rc));
		return CTL_FAILED;
	}
	if (!ctl.quiet)
		ctl_say("%s: what was looked at; no keys, but addresses and names of this machine", bundle_path);
	return CTL_OK;
}

static void make_checks(struct doctor *d, bool late)
{
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		d->check = checks[i].id;
		if (checks[i].late == late && (d->live || !checks[i].tries))
			checks[i].look(d);
	}
}

/* A name or an address, with a port and a transport where these are given. 0, or says what is wrong. */
static int check_host(const char *host)
{
	struct address address;

	if (address_parse(host, &address) != 0)
		return ctl_usage_hint();
	if (address.path || strcmp(address.host, "*") == 0)
		return ctl_usage_error("doctor: %s is not a host: HOST[:PORT], rdma://HOST or tcp://HOST", host);
	return 0;
}

static int command_doctor(const struct ctl_arguments *arguments)
{
	struct doctor d = {.look.root = root ? root : "", .live = !root, .file = file};
	int rc = CTL_OK, bundled = CTL_OK;

	if (root && arguments->count)
		return ctl_usage_error("doctor: --root is of files, and HOST of this machine's network: one of them");
	if (arguments->count && check_host(arguments->text[0]) != 0)
		return CTL_USAGE;
	if (bundle_path)
		rc = bundle_open(bundle_path, &d.look.into);
	if (rc != 0) {
		ctl_say("doctor: --bundle %s: %s", bundle_path, strerror(-rc));
		return CTL_FAILED;
	}
	facts_gather(&d);
	make_checks(&d, false);
	if (arguments->count) {
		d.check = "D40";
		far_look(&d, arguments->text[0]);
	}
	if (!d.live) {
		d.check = "D41";
		there_read(&d);
		there_judge(&d, "the host", &(struct cm_way){.port = 0});
	}
	make_checks(&d, true);
	rc = print_report(&d);
	if (d.look.into)
		bundled = close_bundle(&d);
	for (size_t i = 0; i < d.findings; i++) {
		free(d.finding[i].figures);
		free(d.finding[i].mend);
	}
	free(d.finding);
	facts_release(&d);
	return rc ? rc : bundled;
}

const struct ctl_command ctl_doctor_commands[] = {
	{"doctor", command_doctor, "[HOST]", "what is in the way of rdmad here, and towards a host, and what mends it",
	 doctor_options, 0, 1},
	{NULL},
};

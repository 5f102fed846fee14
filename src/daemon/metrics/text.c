/* text.c: metrics in Prometheus' text format, or as OpenMetrics. A family is there when one of its numbers is. */
#include "daemon/metrics/metrics.h"

#include <stdlib.h>

#define LABELS 8

struct text {
	FILE *out;
	bool open;
	const struct metric *metric;
	bool begun; /* the head of the family is written */
	const char *value[LABELS];
	size_t length[LABELS];
	unsigned labels;
};

static const char *const types[] = {
	[METRIC_COUNTER] = "counter", [METRIC_GAUGE] = "gauge", [METRIC_HISTOGRAM] = "histogram"};

/* In OpenMetrics a family's name lacks what all of its samples end in. */
static int family_length(const struct text *t)
{
	size_t n = strlen(t->metric->name);

	return (int)(t->open && t->metric->type == METRIC_COUNTER ? n - strlen("_total") : n);
}

/* "": it has none. */
static const char *unit_of(const struct metric *m)
{
	static const char *const units[] = {"bytes", "seconds"};
	size_t length = strlen(m->name) - (m->type == METRIC_COUNTER ? strlen("_total") : 0);

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		size_t n = strlen(units[i]);

		if (length > n && m->name[length - n - 1] == '_' && strncmp(m->name + length - n, units[i], n) == 0)
			return units[i];
	}
	return "";
}

static void put_head(struct text *t)
{
	const struct metric *m = t->metric;
	int n = family_length(t);

	fprintf(t->out, "# HELP %.*s %s\n# TYPE %.*s %s\n", n, m->name, m->help, n, m->name, types[m->type]);
	if (t->open && *unit_of(m))
		fprintf(t->out, "# UNIT %.*s %s\n", n, m->name, unit_of(m));
	t->begun = true;
}

static void put_escaped(FILE *out, const char *s, size_t n)
{
	for (; n > 0; s++, n--) {
		if (*s == '\\' || *s == '"')
			fputc('\\', out);
		if (*s == '\n')
			fputs("\\n", out);
		else
			fputc(*s, out);
	}
}

/* `le`: the bound of a bucket; NULL: none. */
static void put_labels(const struct text *t, const char *le)
{
	const char *name = t->metric->labels;

	for (unsigned i = 0; i < t->labels && *name; i++) {
		size_t n = strcspn(name, ",");

		fprintf(t->out, "%s%.*s=\"", i ? "," : "{", (int)n, name);
		put_escaped(t->out, t->value[i], t->length[i]);
		fputc('"', t->out);
		name += n + (name[n] == ',');
	}
	if (le)
		fprintf(t->out, "%sle=\"%s\"", t->labels ? "," : "{", le);
	if (t->labels || le)
		fputc('}', t->out);
}

/* Buckets up to a bound are counted together. */
static void put_histogram(struct text *t, const json_t *from)
{
	const struct metric *m = t->metric;
	const json_t *counts = json_object_get(from, "counts");
	double bound = json_number_value(json_object_get(from, "first")) * m->scale;
	size_t n = json_array_size(counts);
	long long all = 0;
	char le[32];

	for (size_t i = 0; i < n; i++, bound *= 2) {
		all += json_integer_value(json_array_get(counts, i));
		snprintf(le, sizeof(le), "%.9g", bound);
		fprintf(t->out, "%s_bucket", m->name);
		put_labels(t, i + 1 < n ? le : "+Inf");
		fprintf(t->out, " %lld\n", all);
	}
	fprintf(t->out, "%s_sum", m->name);
	put_labels(t, NULL);
	fprintf(t->out, " %.15g\n%s_count", json_number_value(json_object_get(from, "sum")) * m->scale, m->name);
	put_labels(t, NULL);
	fprintf(t->out, " %lld\n", all);
}

static void put_sample(struct text *t, const json_t *number)
{
	const struct metric *m = t->metric;

	if (!json_is_number(number) && !(m->type == METRIC_HISTOGRAM && json_is_object(number)))
		return;
	if (!t->begun)
		put_head(t);
	if (m->type == METRIC_HISTOGRAM) {
		put_histogram(t, number);
		return;
	}
	fputs(m->name, t->out);
	put_labels(t, NULL);
	if (m->scale == 0 && json_is_integer(number))
		fprintf(t->out, " %lld\n", (long long)json_integer_value(number));
	else
		fprintf(t->out, " %.15g\n", json_number_value(number) * (m->scale == 0 ? 1 : m->scale));
}

static void add_label(struct text *t, const char *value, size_t n)
{
	must(t->labels < LABELS);
	t->value[t->labels] = value;
	t->length[t->labels++] = n;
}

/* As deep as the table's path is. */
static void walk_path(struct text *t, const json_t *at, const char *path)
{
	size_t n = strcspn(path, ".");
	const char *rest = path + n + (path[n] == '.');
	json_t *object = (json_t *)(uintptr_t)at, *member;
	const char *name;

	if (!*path) {
		put_sample(t, at);
	} else if (n == 1 && *path == '*') {
		json_object_foreach(object, name, member)
		{
			add_label(t, name, strlen(name));
			walk_path(t, member, rest);
			t->labels--;
		}
	} else {
		walk_path(t, json_object_getn(object, path, n), rest);
	}
}

static void put_family(struct text *t, const json_t *from)
{
	t->begun = false;
	for (const struct metric_source *s = t->metric->from; s->path; s++) {
		t->labels = 0;
		for (const char *value = s->values; *value;) {
			size_t n = strcspn(value, ",");

			add_label(t, value, n);
			value += n + (value[n] == ',');
		}
		walk_path(t, from, s->path);
	}
}

char *metrics_text(json_t *from, bool open, size_t *length)
{
	char *text = NULL;
	struct text t = {.out = open_memstream(&text, length), .open = open};
	bool failed;

	if (!t.out)
		return NULL;
	metrics_add_ports(from);
	for (size_t i = 0; i < metrics_count; i++) {
		t.metric = &metrics[i];
		put_family(&t, from);
	}
	if (open)
		fputs("# EOF\n", t.out);
	failed = ferror(t.out);
	if (fclose(t.out) == 0 && !failed)
		return text;
	free(text);
	return NULL;
}

void metrics_print_table(FILE *out)
{
	for (size_t i = 0; i < metrics_count; i++) {
		const struct metric *m = &metrics[i];

		fprintf(out, "%s\t%s\t%s\t%s\t%s\n", m->name, types[m->type], unit_of(m), m->labels, m->help);
	}
}

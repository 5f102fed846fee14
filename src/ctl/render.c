/* render.c: JSON out, and JSON as people want to read it. */
#include "ctl/ctl.h"

#include <stdlib.h>

static json_t *waiting; /* to be printed */
static bool told;       /* the error stands in what the command printed */

static int print_waiting(void)
{
	bool lost = waiting && ctl_put_json(stdout, waiting) != 0 && !ferror(stdout);

	if (waiting) {
		putchar('\n');
		ctl_flush();
	}
	json_decref(waiting);
	waiting = NULL;
	if (lost)
		ctl_say("no memory for the result");
	return lost ? CTL_FAILED : CTL_OK;
}

int ctl_json_print(json_t *object)
{
	int rc = print_waiting();

	waiting = object;
	if (object)
		return rc;
	ctl_say("no memory for the result");
	return CTL_FAILED;
}

json_t *ctl_json_error(int status)
{
	const char *text = status == CTL_INTERRUPTED ? "interrupted" : ctl_said();
	char line[2048];
	json_t *error;

	told = true;
	error = json_pack("{s:s, s:i}", "text", log_printable(text, line, sizeof(line)), "status", status);
	if (ctl_said_number())
		json_object_set_new(error, "id", json_sprintf(CTL_ERROR_ID, ctl_said_number()));
	return error;
}

int ctl_json_end(int status)
{
	int rc;

	if (ctl.json && status != CTL_OK && !told) {
		if (!waiting)
			waiting = json_pack("{s:s}", "command", ctl_command_name());
		json_object_set_new(waiting, "error", ctl_json_error(status));
	}
	rc = print_waiting();
	return status ? status : rc;
}

char *ctl_base64(const void *data, size_t len)
{
	static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *in = data;
	char *text = malloc((len + 2) / 3 * 4 + 1), *out = text;

	if (!text)
		return NULL;
	for (size_t i = 0; i < len; i += 3) {
		uint32_t bits = (uint32_t)in[i] << 16;

		bits |= i + 1 < len ? (uint32_t)in[i + 1] << 8 : 0;
		bits |= i + 2 < len ? in[i + 2] : 0;
		*out++ = digit[bits >> 18];
		*out++ = digit[bits >> 12 & 63];
		*out++ = i + 1 < len ? digit[bits >> 6 & 63] : '=';
		*out++ = i + 2 < len ? digit[bits & 63] : '=';
	}
	*out = '\0';
	return text;
}

/* 0 to 63, or -1. */
static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Four digits, the last two of which may be missing. How many bytes they are; 0: they are none. */
static size_t base64_group(const char *text, size_t digits, uint8_t *out)
{
	uint32_t bits = 0;

	for (size_t i = 0; i < 4; i++) {
		int digit = i < digits ? base64_digit(text[i]) : 0;

		if (digit < 0)
			return 0;
		bits = bits << 6 | (uint32_t)digit;
	}
	for (size_t i = 0; i + 1 < digits; i++)
		out[i] = (uint8_t)(bits >> (16 - 8 * i));
	/* The spare bits of the last digit must be 0, so that there is one way to write a value. */
	return digits == 4 || (bits & (0xffffffu >> (8 * (digits - 1)))) == 0 ? digits - 1 : 0;
}

char *ctl_base64_decode(const char *text, size_t len, size_t *out_len)
{
	uint8_t *data = len % 4 ? NULL : malloc(len / 4 * 3 + 1);
	size_t n = 0, got = 1;

	if (!data)
		return NULL;
	for (size_t i = 0; i < len && got; i += 4) {
		size_t digits = 4;

		while (i + 4 == len && digits > 2 && text[i + digits - 1] == '=')
			digits--;
		got = base64_group(text + i, digits, data + n);
		n += got;
	}
	if (!got) {
		free(data);
		return NULL;
	}
	data[n] = '\0';
	*out_len = n;
	return (char *)data;
}

int ctl_json_set_bytes(json_t *object, const char *key, const void *data, size_t len)
{
	json_t *string = json_stringn(data, len); /* NULL for what is no UTF-8 */
	char name[64], *text;
	int rc;

	if (string)
		return json_object_set_new(object, key, string);
	text = ctl_base64(data, len);
	if (!text)
		return -1;
	snprintf(name, sizeof(name), "%s_base64", key);
	rc = json_object_set_new(object, name, json_string(text));
	free(text);
	return rc;
}

/*
 * Tables.
 */
void ctl_table_init(struct ctl_table *table)
{
	memset(table, 0, sizeof(*table));
}

void ctl_table_column(struct ctl_table *table, const char *title, bool right)
{
	if (table->columns == CTL_TABLE_COLUMNS)
		return;
	table->title[table->columns] = title;
	table->right[table->columns++] = right;
}

void ctl_table_cell(struct ctl_table *table, const char *format, ...)
{
	va_list args;
	char *text;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	if (n >= 0 && table->cells == table->room) {
		size_t room = MAX(table->room * 2, 64u);
		char **cell = realloc(table->cell, room * sizeof(*cell));

		if (cell) {
			table->cell = cell;
			table->room = room;
		} else {
			free(text);
			n = -1;
		}
	}
	if (n < 0) {
		table->failed = true;
		return;
	}
	table->cell[table->cells++] = text;
}

static void print_row(FILE *out, const struct ctl_table *table, const char *const *cell, const int *width,
		      unsigned indent)
{
	fprintf(out, "%*s", (int)indent, "");
	for (size_t i = 0; i < table->columns; i++) {
		const char *gap = i + 1 < table->columns ? "  " : "\n";

		if (table->right[i])
			fprintf(out, "%*s%s", width[i], cell[i], gap);
		else if (i + 1 < table->columns)
			fprintf(out, "%-*s%s", width[i], cell[i], gap);
		else
			fprintf(out, "%s\n", cell[i]); /* no blanks at a line's end */
	}
}

void ctl_table_print(FILE *out, const struct ctl_table *table, unsigned indent)
{
	int width[CTL_TABLE_COLUMNS] = {0};

	if (!table->columns)
		return;
	for (size_t i = 0; i < table->columns; i++)
		width[i] = (int)strlen(table->title[i]);
	for (size_t i = 0; i < table->cells; i++)
		width[i % table->columns] = MAX(width[i % table->columns], (int)strlen(table->cell[i]));
	print_row(out, table, table->title, width, indent);
	for (size_t i = 0; i + table->columns <= table->cells; i += table->columns)
		print_row(out, table, (const char *const *)table->cell + i, width, indent);
	if (table->failed)
		ctl_say("no memory: the table is not complete");
}

void ctl_table_destroy(struct ctl_table *table)
{
	for (size_t i = 0; i < table->cells; i++)
		free(table->cell[i]);
	free(table->cell);
	ctl_table_init(table);
}

/*
 * Values, with the unit that the end of their name gives.
 */
static void format_bytes(double value, char *buf, size_t size)
{
	char human[32];

	if (value < 10 * KIB) /* 4095 is not 4.00 KiB */
		snprintf(buf, size, "%.0f B", value);
	else
		snprintf(buf, size, "%s", units_human_size(value, human));
}

static void format_rate(double value, char *buf, size_t size)
{
	char human[32];

	snprintf(buf, size, "%s/s", units_human_size(value, human));
}

static void format_us(double value, char *buf, size_t size)
{
	snprintf(buf, size, "%.1f us", value);
}

static void format_ns(double value, char *buf, size_t size)
{
	snprintf(buf, size, "%.3f us", value / 1e3);
}

char *ctl_clock_text(uint64_t s, char buf[static 32])
{
	if (s < 86400)
		snprintf(buf, 32, "%u:%02u:%02u", (unsigned)(s / 3600), (unsigned)(s / 60 % 60), (unsigned)(s % 60));
	else
		snprintf(buf, 32, "%u d %u:%02u", (unsigned)(s / 86400), (unsigned)(s / 3600 % 24),
			 (unsigned)(s / 60 % 60));
	return buf;
}

static void format_seconds(double value, char *buf, size_t size)
{
	char clock[32];

	if (value < 60)
		snprintf(buf, size, "%.4g s", value);
	else
		snprintf(buf, size, "%s", ctl_clock_text((uint64_t)value, clock));
}

static const struct unit {
	const char *suffix;
	void (*format)(double value, char *buf, size_t size);
} units[] = {
	{"bytes_per_second", format_rate}, {"bytes", format_bytes}, {"us", format_us}, {"ns", format_ns},
	{"seconds", format_seconds},
};

/* The unit at the end of a name, where a "_" or nothing stands in front of it. */
static const struct unit *unit_of(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		size_t n = strlen(units[i].suffix);

		if (len >= n && strcmp(name + len - n, units[i].suffix) == 0 && (len == n || name[len - n - 1] == '_'))
			return &units[i];
	}
	return NULL;
}

static void format_value(const char *name, const json_t *value, char *buf, size_t size)
{
	const struct unit *unit = unit_of(name);

	switch (json_typeof(value)) {
	case JSON_STRING:
		snprintf(buf, size, "%s", json_string_value(value));
		return;
	case JSON_INTEGER:
	case JSON_REAL:
		if (unit)
			unit->format(json_number_value(value), buf, size);
		else if (json_is_integer(value))
			snprintf(buf, size, "%lld", (long long)json_integer_value(value));
		else
			snprintf(buf, size, "%.6g", json_real_value(value));
		return;
	case JSON_TRUE:
		snprintf(buf, size, "yes");
		return;
	case JSON_FALSE:
		snprintf(buf, size, "no");
		return;
	default:
		snprintf(buf, size, "-");
	}
}

/* "idle_us" is told as "idle", and "posted_receives" as "posted receives"; bytes of something remain that. Returns
 * buf. */
static char *format_name(const char *name, char *buf, size_t size)
{
	const struct unit *unit = unit_of(name) && unit_of(name)->format != format_bytes ? unit_of(name) : NULL;
	size_t len = strlen(name), n = unit ? strlen(unit->suffix) + 1 : 0;

	if (len > n)
		len -= n;
	snprintf(buf, size, "%.*s", (int)len, name);
	for (char *p = buf; *p; p++)
		if (*p == '_')
			*p = ' ';
	return buf;
}

static void render_scalars(FILE *out, const json_t *object, unsigned indent)
{
	const char *key;
	char name[128], text[512];
	json_t *value;
	int width = 0;

	json_object_foreach((json_t *)object, key, value)
	{
		if (!json_is_object(value) && !json_is_array(value))
			width = MAX(width, (int)strlen(format_name(key, name, sizeof(name))));
	}
	json_object_foreach((json_t *)object, key, value)
	{
		if (json_is_object(value) || json_is_array(value))
			continue;
		format_value(key, value, text, sizeof(text));
		fprintf(out, "%*s%-*s  %s\n", (int)indent, "", width, format_name(key, name, sizeof(name)), text);
	}
}

/* The columns are the scalar members of the first row. */
static void render_table(FILE *out, const json_t *rows, unsigned indent)
{
	static char title[CTL_TABLE_COLUMNS][64];
	struct ctl_table table;
	const char *key;
	char text[512];
	json_t *row, *value;
	size_t i;

	ctl_table_init(&table);
	json_object_foreach(json_array_get(rows, 0), key, value)
	{
		if (json_is_object(value) || json_is_array(value) || table.columns == CTL_TABLE_COLUMNS)
			continue;
		format_name(key, title[table.columns], sizeof(title[0]));
		ctl_table_column(&table, title[table.columns], json_is_number(value));
	}
	json_array_foreach(rows, i, row)
	{
		size_t columns = 0;

		json_object_foreach(json_array_get(rows, 0), key, value)
		{
			json_t *cell = json_object_get(row, key);

			if (json_is_object(value) || json_is_array(value) || columns++ == table.columns)
				continue;
			if (cell)
				format_value(key, cell, text, sizeof(text));
			ctl_table_cell(&table, "%s", cell ? text : "-");
		}
	}
	ctl_table_print(out, &table, indent);
	ctl_table_destroy(&table);
}

static void render_object(FILE *out, const json_t *object, unsigned indent);

static void render_array(FILE *out, const char *name, const json_t *array, unsigned indent)
{
	char text[512];
	json_t *item;
	size_t i;

	fprintf(out, "%*s%s:%s", (int)indent, "", name, json_array_size(array) ? "" : " none\n");
	if (json_is_object(json_array_get(array, 0))) {
		putc('\n', out);
		render_table(out, array, indent + 2);
		return;
	}
	json_array_foreach(array, i, item)
	{
		format_value(name, item, text, sizeof(text));
		fprintf(out, " %s%s", text, i + 1 < json_array_size(array) ? "," : "\n");
	}
}

static void render_object(FILE *out, const json_t *object, unsigned indent)
{
	const char *key;
	char name[128];
	json_t *value;

	render_scalars(out, object, indent);
	json_object_foreach((json_t *)object, key, value)
	{
		format_name(key, name, sizeof(name));
		if (json_is_array(value)) {
			render_array(out, name, value, indent);
		} else if (json_is_object(value)) {
			fprintf(out, "%*s%s:\n", (int)indent, "", name);
			render_object(out, value, indent + 2);
		}
	}
}

void ctl_render(FILE *out, const json_t *object)
{
	render_object(out, object, 0);
}

int ctl_print(json_t *object)
{
	if (ctl.json || !object)
		return ctl_json_print(object);
	ctl_render(stdout, object);
	json_decref(object);
	return CTL_OK;
}

int ctl_print_rows(json_t *answer, const char *name, json_t *(*row_of)(const json_t *item))
{
	json_t *rows, *item;
	size_t i;

	if (ctl.json)
		return ctl_json_print(answer);
	rows = json_array();
	json_array_foreach(json_object_get(answer, name), i, item) json_array_append_new(rows, row_of(item));
	json_decref(answer);
	return ctl_print(json_pack("{s:o}", name, rows));
}

/* units.c: sizes and times as people write them. */
#include "base/base.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit size_units[] = {
	{"", 1},      {"B", 1},          {"K", KIB},         {"KB", KIB},         {"KiB", KIB},
	{"M", MIB},   {"MB", MIB},       {"MiB", MIB},       {"G", GIB},          {"GB", GIB},
	{"GiB", GIB}, {"T", 1024 * GIB}, {"TB", 1024 * GIB}, {"TiB", 1024 * GIB}, {NULL, 0},
};

static const struct unit time_units[] = {
	{"ns", 1},          {"us", TIME_US},      {"ms", TIME_MS},       {"s", TIME_S},
	{"m", 60 * TIME_S}, {"h", 3600 * TIME_S}, {"d", 86400 * TIME_S}, {NULL, 0},
};

/* Digits with at most one point, no sign and no exponent: what strtod alone would let pass. */
static int parse_decimal(const char *text, double *number, const char **end)
{
	const char *p = text;
	unsigned digits = 0, points = 0;

	for (; isdigit((unsigned char)*p) || *p == '.'; p++)
		*p == '.' ? points++ : digits++;
	if (!digits || points > 1 || p - text > 32)
		return -EINVAL;
	*number = strtod(text, NULL);
	*end = p;
	return 0;
}

static int parse_with_units(const char *text, const struct unit *units, uint64_t *out)
{
	const char *end;
	double number;

	if (parse_decimal(text, &number, &end) != 0)
		return -EINVAL;
	for (; units->name; units++) {
		if (strcasecmp(end, units->name) != 0)
			continue;
		if (number * (double)units->factor >= 0x1p63)
			return -ERANGE;
		/* Whole numbers must not lose their last digits in a double. */
		if (!memchr(text, '.', (size_t)(end - text)))
			*out = strtoull(text, NULL, 10) * units->factor;
		else
			*out = (uint64_t)(number * (double)units->factor + 0.5);
		return 0;
	}
	return -EINVAL;
}

int units_parse_size(const char *text, uint64_t *out)
{
	return parse_with_units(text, size_units, out);
}

int units_parse_time(const char *text, uint64_t *out)
{
	if (strcmp(text, "0") == 0) {
		*out = 0;
		return 0;
	}
	return parse_with_units(text, time_units, out);
}

int units_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;
	unsigned long long value;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end || errno)
		return -EINVAL;
	if (value < min || value > max)
		return -ERANGE;
	*out = value;
	return 0;
}

char *units_format_size(uint64_t bytes, char buf[static 32])
{
	static const char suffix[] = {'T', 'G', 'M', 'K'};
	uint64_t factor = 1024 * GIB;

	for (size_t i = 0; i < ARRAY_SIZE(suffix); i++, factor /= KIB) {
		if (bytes && bytes % factor == 0) {
			snprintf(buf, 32, "%" PRIu64 "%c", bytes / factor, suffix[i]);
			return buf;
		}
	}
	snprintf(buf, 32, "%" PRIu64, bytes);
	return buf;
}

char *units_format_time(uint64_t ns, char buf[static 32])
{
	size_t i = ARRAY_SIZE(time_units) - 2;

	if (!ns) {
		snprintf(buf, 32, "0");
		return buf;
	}
	while (ns % time_units[i].factor)
		i--;
	snprintf(buf, 32, "%" PRIu64 "%s", ns / time_units[i].factor, time_units[i].name);
	return buf;
}

char *units_human_size(double bytes, char buf[static 32])
{
	static const char *const suffix[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	size_t i = 0;

	for (; bytes >= 1000 && i + 1 < ARRAY_SIZE(suffix); i++)
		bytes /= 1024;
	snprintf(buf, 32, "%.*f %s", i == 0 ? 0 : bytes < 10 ? 2 : bytes < 100 ? 1 : 0, bytes, suffix[i]);
	return buf;
}

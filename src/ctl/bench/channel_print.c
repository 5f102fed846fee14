/* channel_print.c: the results of a benchmark of channels, as a table or in JSON. */
#include "ctl/bench/channel.h"
#include "ctl/ctl.h"

/* Compare the times of work that is waited for, and the rates of streams. */
static double result_ratio(const struct bench_channel_result *r)
{
	bool stream = strcmp(r->op, "stream") == 0;

	return r->ns <= 0 || r->beside_ns <= 0 ? 0 : stream ? r->beside_ns / r->ns : r->ns / r->beside_ns;
}

static void add_row(struct ctl_table *table, const struct bench_channel_result *r)
{
	double rate = r->ns > 0 ? 1e9 / r->ns : 0;
	char text[32];

	ctl_table_cell(table, "%s", r->op);
	ctl_table_cell(table, "%s", r->way);
	ctl_table_cell(table, "%s", units_format_size(r->size, text));
	ctl_table_cell(table, "%.3f", r->ns / 1e3);
	ctl_table_cell(table, "%.0f", rate);
	ctl_table_cell(table, "%.1f", rate * (double)r->size / (double)MIB);
	if (r->beside) {
		ctl_table_cell(table, "%s", r->beside);
		ctl_table_cell(table, "%.3f", r->beside_ns / 1e3);
		ctl_table_cell(table, "%.2f", result_ratio(r));
		return;
	}
	for (int i = 0; i < 3; i++)
		ctl_table_cell(table, "%s", "");
}

static void print_table(const struct bench_channel_result *results, size_t n)
{
	static const char *const titles[] = {"what", "way", "size", "us", "1/s", "MiB/s", "beside", "its us", "ratio"};
	struct ctl_table table;

	ctl_table_init(&table);
	for (size_t i = 0; i < ARRAY_SIZE(titles); i++)
		ctl_table_column(&table, titles[i], i >= 2 && i != 6);
	for (size_t i = 0; i < n; i++)
		add_row(&table, &results[i]);
	ctl_table_print(stdout, &table, 0);
	ctl_table_destroy(&table);
}

int bench_channel_print(const char *url, const char *transport, uint64_t capacity,
			const struct bench_channel_result *results, size_t n)
{
	json_t *list;

	if (!ctl.json) {
		print_table(results, n);
		return CTL_OK;
	}
	list = json_array();
	for (const struct bench_channel_result *r = results; r < results + n; r++) {
		json_t *o = bench_rate_json(r->op, r->way, r->size, r->ns);

		if (r->beside) {
			json_object_set_new(o, "beside", json_string(r->beside));
			json_object_set_new(o, "beside_time_us", json_real(r->beside_ns / 1e3));
			json_object_set_new(o, "ratio", json_real(result_ratio(r)));
		}
		json_array_append_new(list, o);
	}
	return ctl_json_print(json_pack("{s:s, s:s, s:s, s:I, s:b, s:o}", "command", ctl_command_name(), "url", url,
					"transport", transport, "capacity_bytes", (json_int_t)capacity, "interrupted",
					ctl_interrupted(), "results", list));
}

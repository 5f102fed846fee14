/* conn.c: the connections of the daemon of this machine, whatever protocol they speak. */
#include "ctl/ctl.h"

#include <stdlib.h>

/* The columns for people; the daemon's answer has more. */
static const struct {
	const char *member, *title;
} columns[] = {
	{"id", "id"},
	{"peer", "address"},
	{"transport", "transport"},
	{"service", "service"},
	{"key", "key"},
	{"state", "state"},
	{"age_seconds", "age_seconds"},
	{"records_in", "requests_in"},
	{"records_out", "answers_out"},
	{"in_bytes", "in_bytes"},
	{"out_bytes", "out_bytes"},
	{"in_flight", "in_flight"},
};

static int compare_ids(const void *a, const void *b)
{
	json_int_t one = json_integer_value(json_object_get(*(json_t *const *)a, "id"));
	json_int_t other = json_integer_value(json_object_get(*(json_t *const *)b, "id"));

	return (one > other) - (one < other);
}

/* Each worker has told of its own. NULL: no memory. */
static json_t *sorted_by_id(json_t *list)
{
	size_t n = json_array_size(list);
	json_t **row = calloc(n + 1, sizeof(json_t *)), *sorted = json_array();

	for (size_t i = 0; row && i < n; i++)
		row[i] = json_array_get(list, i);
	if (row)
		qsort(row, n, sizeof(json_t *), compare_ids);
	for (size_t i = 0; row && i < n; i++)
		json_array_append(sorted, row[i]);
	free(row);
	return sorted;
}

static json_t *row_of(const json_t *connection)
{
	json_t *row = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		json_object_set(row, columns[i].title, json_object_get(connection, columns[i].member));
	return row;
}

static int print_list(json_t *answer)
{
	json_t *list = json_object_get(answer, "connections"), *table = json_array(), *connection;
	size_t i;

	if (ctl.json) {
		json_decref(table);
		return ctl_json_print(answer);
	}
	json_array_foreach(list, i, connection) json_array_append_new(table, row_of(connection));
	json_decref(answer);
	answer = json_pack("{s:o}", "connections", table);
	if (answer)
		ctl_render(stdout, answer);
	json_decref(answer);
	return CTL_OK;
}

static int command_list(const struct ctl_arguments *arguments)
{
	json_t *answer;
	int rc = ctl_control_ask("connections", &answer);

	(void)arguments;
	if (rc != CTL_OK)
		return rc;
	json_object_set_new(answer, "connections", sorted_by_id(json_object_get(answer, "connections")));
	return print_list(answer);
}

/* Ask the daemon to do `verb` with the connection of that id. */
static int ask_of(const char *verb, const char *id, json_t **answer)
{
	char line[128];

	snprintf(line, sizeof(line), "%s %.64s", verb, id);
	return ctl_control_ask(line, answer);
}

static int command_show(const struct ctl_arguments *arguments)
{
	json_t *answer;
	int rc = ask_of("connection", arguments->text[0], &answer);

	if (rc != CTL_OK)
		return rc;
	if (ctl.json)
		return ctl_json_print(answer);
	ctl_render(stdout, json_array_get(json_object_get(answer, "connections"), 0));
	json_decref(answer);
	return CTL_OK;
}

static int command_close(const struct ctl_arguments *arguments)
{
	json_t *answer;
	int rc = ask_of("disconnect", arguments->text[0], &answer);

	return rc == CTL_OK ? print_list(answer) : rc;
}

const struct ctl_command ctl_conn_commands[] = {
	{"conn list", command_list, "", "the connections of the daemon", .local = true},
	{"conn show", command_show, "ID", "all that is known of one", NULL, 1, 1, .local = true},
	{"conn close", command_close, "ID", "end a connection of the daemon", NULL, 1, 1, .local = true},
	{NULL},
};

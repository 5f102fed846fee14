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

/* Each worker has told of its own. Without memory they remain in that order. */
static json_t *sorted_by_id(json_t *list)
{
	size_t n = json_array_size(list);
	json_t **row = calloc(n + 1, sizeof(json_t *)), *sorted = json_array();

	if (!row) {
		json_decref(sorted);
		return json_incref(list);
	}
	for (size_t i = 0; i < n; i++)
		row[i] = json_array_get(list, i);
	qsort(row, n, sizeof(json_t *), compare_ids);
	for (size_t i = 0; i < n; i++)
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

static int command_list(const struct ctl_arguments *arguments)
{
	json_t *answer;
	int rc = ctl_control_ask("connections", &answer);

	(void)arguments;
	if (rc != CTL_OK)
		return rc;
	json_object_set_new(answer, "connections", sorted_by_id(json_object_get(answer, "connections")));
	return ctl_print_rows(answer, "connections", row_of);
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
	json_t *answer, *connection;
	int rc = ask_of("connection", arguments->text[0], &answer);

	if (rc != CTL_OK)
		return rc;
	if (ctl.json)
		return ctl_json_print(answer);
	connection = json_incref(json_array_get(json_object_get(answer, "connections"), 0));
	json_decref(answer);
	return ctl_print(connection);
}

static int command_close(const struct ctl_arguments *arguments)
{
	json_t *answer;
	int rc = ask_of("disconnect", arguments->text[0], &answer);

	return rc == CTL_OK ? ctl_print_rows(answer, "connections", row_of) : rc;
}

const struct ctl_command ctl_conn_commands[] = {
	{"conn list", command_list, "", "the connections of the daemon", .local = true},
	{"conn show", command_show, "ID", "all that is known of one", NULL, 1, 1, .local = true},
	{"conn close", command_close, "ID", "end a connection of the daemon", NULL, 1, 1, .local = true},
	{NULL},
};

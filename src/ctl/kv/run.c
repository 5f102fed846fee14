/*
 * run.c: carry out a command file. Requests go out without waiting for each other's answers; those for one
 * key are carried out in their order, so a get sees the sets in front of it. Answers of large values come
 * behind those of small ones: the output of gets is put in order here.
 */
#include "ctl/ctl.h"
#include "rdmad/kv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define HELD_MAX (256 * MIB) /* large values on their way at a time, but for one */

struct key {
	unsigned gets;    /* sent, without an answer */
	size_t value_len; /* of the last value seen; 0: unknown */
	size_t len;
	char text[];
};

/* The keys that were named, each once, in the order of their first use: printkv prints these. */
struct keys {
	struct key **key;
	size_t count, room;
	uint32_t *slot; /* open addressing: index into key plus 1; 4 * room of them */
};

struct run {
	const char *name;
	void *kv;
	uint64_t line, sets, gets, failed;
	struct keys keys;
	struct run_request *first, **last; /* gets, in the order in which they are shown */
	size_t held;                       /* bytes of large values on their way */
	json_t *results;                   /* NULL unless --json */
	uint64_t random;
	int error; /* what ended the run */
};

/* A request that was sent. */
struct run_request {
	struct run_request *next; /* get behind this one */
	struct run *run;
	struct key *key;
	uint64_t line;
	enum script_verb verb; /* SCRIPT_PRINTKV: a get that prints its key too */
	bool answered;         /* a get that waits for those in front of it */
	int status;
	char *value; /* of a set that the server fetches from here, or of a get that waits */
	size_t len, held;
};

/* Where a key is, or the free slot where it belongs. */
static uint32_t *keys_slot(const struct keys *keys, const char *key, size_t len)
{
	size_t slots = 4 * keys->room;

	for (size_t i = hash_bytes(key, len) % slots;; i = (i + 1) % slots) {
		const struct key *k = keys->slot[i] ? keys->key[keys->slot[i] - 1] : NULL;

		if (!k || (k->len == len && memcmp(k->text, key, len) == 0))
			return &keys->slot[i];
	}
}

static int keys_grow(struct keys *keys)
{
	size_t room = MAX(2 * keys->room, 256u);
	struct key **key = realloc(keys->key, room * sizeof(*key));
	uint32_t *slot = calloc(4 * room, sizeof(*slot));

	if (key)
		keys->key = key;
	if (!key || !slot) {
		free(slot);
		return -ENOMEM;
	}
	free(keys->slot);
	keys->slot = slot;
	keys->room = room;
	for (size_t i = 0; i < keys->count; i++)
		*keys_slot(keys, key[i]->text, key[i]->len) = (uint32_t)i + 1;
	return 0;
}

/* The key of that name, a new one where need be; NULL: no memory. */
static struct key *keys_add(struct keys *keys, const char *text, size_t len)
{
	struct key *key;
	uint32_t *slot;

	if (keys->count == keys->room && keys_grow(keys) != 0)
		return NULL;
	slot = keys_slot(keys, text, len);
	if (*slot)
		return keys->key[*slot - 1];
	key = calloc(1, sizeof(*key) + len);
	if (!key)
		return NULL;
	key->len = len;
	memcpy(key->text, text, len);
	keys->key[keys->count++] = key;
	*slot = (uint32_t)keys->count;
	return key;
}

/* The rest of the file goes on after a line that failed. */
static void line_failed(struct run *run, uint64_t line, const char *what)
{
	run->failed++;
	ctl_say("%s:%llu: %s", run->name, (unsigned long long)line, what);
}

static void request_failed(const struct run_request *r, const char *why)
{
	char text[512];

	snprintf(text, sizeof(text), "%s %.*s: %s", r->verb == SCRIPT_SET ? "set" : "get", (int)MIN(r->key->len, 100u),
		 r->key->text, why);
	line_failed(r->run, r->line, text);
}

/* Print what a get found: the value, "" where the key is missing. */
static void run_print_get(struct run *run, const struct run_request *r, const void *value, size_t len)
{
	bool found = r->status == 0;

	value = found ? value : "";
	len = found ? len : 0;
	if (run->results) {
		json_t *o = json_pack("{s:I, s:b}", "line", (json_int_t)r->line, "found", found);

		ctl_json_set_bytes(o, "key", r->key->text, r->key->len);
		ctl_json_set_bytes(o, "value", value, len);
		json_array_append_new(run->results, o);
		return;
	}
	if (r->verb == SCRIPT_PRINTKV) {
		ctl_put_key(r->key->text, r->key->len);
		putchar(' ');
	}
	ctl_put_value(value, len);
	putchar('\n');
	ctl_record_end();
}

static void request_free(struct run_request *r)
{
	r->run->held -= r->held;
	free(r->value);
	free(r);
}

static void request_end(struct run_request *r, const void *value, size_t len)
{
	struct run *run = r->run;

	if (r->verb != SCRIPT_SET && (r->status == 0 || r->status == -ENOENT)) {
		run_print_get(run, r, value, len);
	} else if (r->status != 0 && ctl_kv_status_final(r->status)) {
		request_failed(r, ctl_kv_status_text(r->status));
	} else if (r->status != 0) { /* the connection ended: command_run() says so once, not for each request */
		run->failed++;
		run->error = run->error ? run->error : -ENOTCONN;
	}
	request_free(r);
}

/* Print the first get, which was answered now, and the answered ones behind it, which waited for it. */
static void run_print_gets(struct run *run, const void *value, size_t len)
{
	struct run_request *r = run->first;

	do {
		run->first = r->next;
		if (!run->first)
			run->last = &run->first;
		request_end(r, value, len);
		r = run->first;
		value = r ? r->value : NULL;
		len = r ? r->len : 0;
	} while (r && r->answered);
}

static void request_answered(void *arg, int status, const void *value, size_t len)
{
	struct run_request *r = arg;

	r->answered = true;
	r->status = status;
	if (r->verb == SCRIPT_SET) {
		request_end(r, NULL, 0);
		return;
	}
	r->key->gets--;
	if (status == 0)
		r->key->value_len = len;
	if (r->run->first == r) {
		run_print_gets(r->run, value, len);
	} else if (status == 0) { /* gets before it have no answer yet: keep its value until then */
		r->value = malloc(len + 1);
		if (r->value)
			memcpy(r->value, value, len);
		else
			r->status = -ENOMEM;
		r->len = len;
	}
}

static void run_drain(void *arg)
{
	struct run *run = arg;

	while (!run->error && kv_outstanding(run->kv)) {
		int rc = ctl_kv_await(run->kv);

		if (rc != 0) /* else a request's end may have set it */
			run->error = rc;
	}
	ctl_flush(); /* a program that writes into our pipe may wait for it */
}

static int run_submit_once(struct run *run, struct run_request *r, const void *value, size_t len)
{
	int rc;

	if (r->verb == SCRIPT_SET)
		return kv_submit_set(run->kv, r->key->text, r->key->len, value, len, request_answered, r);
	rc = kv_submit_get(run->kv, r->key->text, r->key->len, request_answered, r);
	if (rc != 0)
		return rc;
	r->key->gets++;
	*run->last = r;
	run->last = &r->next;
	return 0;
}

static struct run_request *request_new(struct run *run, enum script_verb verb, struct key *key)
{
	struct run_request *r = calloc(1, sizeof(*r));

	if (!r) {
		line_failed(run, run->line, "no memory for the request");
		return NULL;
	}
	r->run = run;
	r->line = run->line;
	r->verb = verb;
	r->key = key;
	return r;
}

static void run_submit(struct run *run, struct run_request *r, const void *value, size_t len)
{
	int rc = 0;

	/* A get whose value's length is not known may have to be sent a second time: no set of its key may come
	 * between. And only so many bytes of large values are held. */
	while (rc == 0 && ((r->verb == SCRIPT_SET && r->key->gets) || (run->held && run->held + r->held > HELD_MAX)))
		rc = ctl_kv_await(run->kv);
	run->held += r->held;
	while (rc == 0 && (rc = run_submit_once(run, r, value, len)) == -EAGAIN)
		rc = ctl_kv_await(run->kv);
	if (rc == 0)
		return;
	if (ctl_kv_cannot_go_on(rc))
		run->error = rc;
	else
		request_failed(r, rdmad_error());
	request_free(r);
}

static void run_get(struct run *run, enum script_verb verb, struct key *key)
{
	struct run_request *r = request_new(run, verb, key);

	if (!r)
		return;
	r->held = key->value_len;
	run_submit(run, r, NULL, 0);
}

/* A value that does not fit a message is fetched from where it is, after the line was left. */
static void run_set(struct run *run, struct key *key, const char *value, size_t len)
{
	struct run_request *r = request_new(run, SCRIPT_SET, key);

	if (!r)
		return;
	key->value_len = len;
	if (key->len + len > kv_eager_max(run->kv)) {
		r->held = len;
		r->value = malloc(len);
		if (!r->value) {
			line_failed(run, run->line, "no memory for a value of that size");
			free(r);
			return;
		}
		memcpy(r->value, value, len);
		value = r->value;
	}
	run_submit(run, r, value, len);
}

static void run_set_random(struct run *run, struct key *key, uint64_t size)
{
	struct run_request *r = request_new(run, SCRIPT_SET, key);

	if (!r)
		return;
	r->len = (size_t)size - 1;
	r->value = malloc((size_t)size);
	if (!r->value) {
		line_failed(run, run->line, "no memory for a value of that size");
		free(r);
		return;
	}
	key->value_len = r->held = r->len;
	script_random_text(r->value, r->len, &run->random);
	run_submit(run, r, r->value, r->len);
}

static void run_command(struct run *run, const struct script_command *c)
{
	struct key *key = NULL;

	if (c->key_len) {
		key = keys_add(&run->keys, c->key, c->key_len);
		if (!key) {
			line_failed(run, run->line, "no memory for the key");
			return;
		}
	}
	run->gets += c->verb == SCRIPT_GET;
	run->sets += c->verb == SCRIPT_SET || c->verb == SCRIPT_SETSIZE;
	switch (c->verb) {
	case SCRIPT_NONE:
		break;
	case SCRIPT_SET:
		run_set(run, key, c->value, c->value_len);
		break;
	case SCRIPT_GET:
		run_get(run, SCRIPT_GET, key);
		break;
	case SCRIPT_SETSIZE:
		run_set_random(run, key, c->size);
		break;
	case SCRIPT_PRINTKV:
		for (size_t i = 0; i < run->keys.count && !run->error; i++)
			run_get(run, SCRIPT_PRINTKV, run->keys.key[i]);
		break;
	}
}

static void run_lines(struct run *run, int fd)
{
	struct script_reader reader = {.fd = fd, .idle = run_drain, .arg = run};
	struct script_command command;
	const char *line, *wrong;
	size_t len;
	int rc = 0;

	while (!run->error && !ctl_interrupted() && (rc = script_read(&reader, &line, &len)) > 0) {
		run->line++;
		wrong = script_parse(line, len, &command);
		if (wrong)
			line_failed(run, run->line, wrong);
		else
			run_command(run, &command);
	}
	if (rc < 0 && rc != -EINTR)
		line_failed(run, run->line + 1, strerror(-rc));
	run_drain(run);
	script_reader_destroy(&reader);
}

static void print_summary(struct run *run, uint64_t elapsed)
{
	json_t *o;

	if (!run->results) {
		if (ctl_sums_up())
			ctl_say("%s: %llu sets, %llu gets, %llu failed, %.3f s, transport %s", ctl.host,
				(unsigned long long)run->sets, (unsigned long long)run->gets,
				(unsigned long long)run->failed, (double)elapsed / 1e9, kv_transport(run->kv));
		return;
	}
	o = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:b, s:O}", "command", "kv run", "server", ctl.host,
		      "transport", kv_transport(run->kv), "sets", (json_int_t)run->sets, "gets", (json_int_t)run->gets,
		      "failed", (json_int_t)run->failed, "elapsed_seconds", (double)elapsed / 1e9, "interrupted",
		      ctl_interrupted(), "results", run->results);
	ctl_json_print(o);
}

static int command_run(const struct ctl_arguments *arguments)
{
	struct run run = {.name = arguments->text[0], .random = time_now() | 1};
	bool from_stdin = strcmp(run.name, "-") == 0;
	int fd = from_stdin ? STDIN_FILENO : open(run.name, O_RDONLY | O_CLOEXEC), rc;
	uint64_t begin;

	if (fd < 0) {
		ctl_say("kv run: cannot read %s: %s", run.name, strerror(errno));
		return CTL_FAILED;
	}
	ctl_catch_interrupt();
	rc = ctl_kv_open(&run.kv);
	if (rc != 0)
		goto close_file;
	run.results = ctl.json ? json_array() : NULL;
	run.last = &run.first;
	begin = time_now();
	run_lines(&run, fd);
	print_summary(&run, time_now() - begin);
	if (ctl_interrupted())
		rc = CTL_INTERRUPTED;
	else if (run.error)
		rc = ctl_fail(run.error,
			      run.error == -ETIMEDOUT ? "no answer in time" : "the connection ended before all answers",
			      "kv run %s, line %llu", run.name, (unsigned long long)run.line);
	else
		rc = run.failed ? CTL_FAILED : CTL_OK;
	kv_close(run.kv);
	for (size_t i = 0; i < run.keys.count; i++)
		free(run.keys.key[i]);
	free(run.keys.key);
	free(run.keys.slot);
	json_decref(run.results);
close_file:
	if (!from_stdin)
		close(fd);
	return rc;
}

const struct ctl_command ctl_kv_run_commands[] = {
	{"kv run", command_run, "FILE|-", "carry out a file of commands", NULL, 1, 1},
	{NULL},
};

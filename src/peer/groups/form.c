/*
 * form.c: how a group forms. Each member listens, and has a token, which a connecting member says together with its own
 * rank. When a member knows tokens and addresses of all, it connects to those of higher ranks, and expects those of
 * lower ones. When it is connected to all it tells rank 0, which tells all when it has heard so from all: then the
 * group is whole.
 */
#include "peer/groups/form.h"

#include <stdlib.h>
#include <sys/random.h>

#define PAUSE_FIRST (20 * TIME_MS) /* before the addresses of a member are tried anew; doubles */
#define PAUSE_MOST (500 * TIME_MS)
#define ATTEMPT_FIRST (2 * TIME_S)   /* nothing may listen there */
#define MESH_INTERVAL (50 * TIME_MS) /* most between two checks of what is to be dialed */

void form_patient(struct group *group)
{
	group->form->until = time_after(time_now(), group->timeout);
}

uint64_t form_token(const struct group *group)
{
	return group->form->token;
}

int form_begin(struct group *group, uint64_t until)
{
	size_t size = (size_t)group->base.size;
	struct group_form *form = calloc(1, sizeof(*form) + size * sizeof(form->member[0]));

	if (!form || getrandom(&form->token, sizeof(form->token), 0) != sizeof(form->token)) {
		free(form);
		return rdma_fail(-ENOMEM, "No memory or random numbers for a group of %d members", group->base.size);
	}
	form->token |= 1ull << 63; /* not 0 with any rank */
	form->token &= ~(uint64_t)UINT16_MAX;
	form->until = until;
	for (size_t i = 0; i < size; i++)
		form->member[i].group = group;
	group->form = form;
	return peer_listen(group->base.ctx);
}

void form_free(struct group *group)
{
	struct group_form *form = group->form;

	if (!form)
		return;
	for (int i = 0; i < group->base.size; i++) {
		if (form->member[i].expected)
			peer_expect(group->base.ctx, form->token + (uint64_t)i, NULL, NULL);
		free(form->member[i].addresses);
		free(form->member[i].copy);
	}
	free(form);
	group->form = NULL;
}

void form_fail(struct group *group, int error, const char *format, ...)
{
	struct group_form *form = group->form;
	va_list args;

	if (form->error)
		return;
	form->error = error;
	va_start(args, format);
	vsnprintf(form->why, sizeof(form->why), format, args);
	va_end(args);
	group->base.ctx->progressed++;
}

void form_lost(struct group *group, int rank, const char *why)
{
	if (group->form)
		form_fail(group, -ECONNRESET, "rank %d of %d was lost: %s", rank, group->base.size, why);
}

/*
 * The table
 */
static int form_member(struct group *group, uint32_t rank, uint64_t token, const char *addresses, size_t length)
{
	struct group_form *form = group->form;
	struct form_member *member;

	if (rank >= (uint32_t)group->base.size || length > WIRE_PEER_ADDRESSES_MAX)
		return -EPROTO;
	member = &form->member[rank];
	if (member->known)
		return -EPROTO;
	member->addresses = strndup(addresses, length);
	member->copy = strndup(addresses, length);
	if (!member->addresses || !member->copy)
		return -ENOMEM;
	member->token = token;
	member->known = true;
	form->known++;
	return 0;
}

int form_table(struct group *group, const uint8_t *at, size_t left, uint32_t first, uint32_t count)
{
	struct wire_peer_member member;

	for (uint32_t i = 0; i < count; i++) {
		int rc;

		if (left < sizeof(member))
			return -EPROTO;
		memcpy(&member, at, sizeof(member));
		at += sizeof(member);
		left -= sizeof(member);
		if (member.addresses_len > left || member.rank != first + i)
			return -EPROTO;
		rc = form_member(group, member.rank, member.token, (const char *)at, member.addresses_len);
		if (rc != 0)
			return rc;
		at += MIN(WIRE_PAD(member.addresses_len), left);
		left -= MIN(WIRE_PAD(member.addresses_len), left);
	}
	return left ? -EPROTO : 0;
}

static size_t member_put(const struct group *group, int rank, uint8_t *out, size_t room)
{
	const struct form_member *member = &group->form->member[rank];
	size_t len = member->addresses ? strlen(member->addresses) : 0;
	struct wire_peer_member put = {.token = member->token, .rank = (uint32_t)rank, .addresses_len = (uint32_t)len};

	if (room < sizeof(put) + WIRE_PAD(len))
		return 0;
	memset(out, 0, sizeof(put) + WIRE_PAD(len));
	memcpy(out, &put, sizeof(put));
	if (len)
		memcpy(out + sizeof(put), member->addresses, len);
	return sizeof(put) + WIRE_PAD(len);
}

/* To all, page by page. */
void form_table_say(struct group *group)
{
	struct {
		struct wire_group_table head;
		uint8_t bytes[PEER_CONTROL_MAX - sizeof(struct wire_group_table)];
	} page = {.head.number = group->base.number};

	for (int rank = 0; rank < group->base.size;) {
		size_t used = 0, bytes;

		page.head.first = (uint32_t)rank;
		while (rank < group->base.size &&
		       (bytes = member_put(group, rank, page.bytes + used, sizeof(page.bytes) - used))) {
			used += bytes;
			rank++;
		}
		page.head.count = (uint32_t)rank - page.head.first;
		group_say(group, WIRE_CONTROL_GROUP_TABLE, &page, sizeof(page.head) + used);
	}
}

/*
 * The mesh
 */
void form_linked(struct group *group, int rank, struct peer *peer)
{
	struct form_member *member = &group->form->member[rank];
	char name[sizeof(peer->name)];

	must(!member->linked);
	member->linked = true;
	group->form->linked++;
	group->base.member[rank] = peer;
	if (peer->inner && strncmp(peer->name, "rank ", 5) != 0) {
		snprintf(name, sizeof(name), "%s", peer->name);
		snprintf(peer->name, sizeof(peer->name), "rank %d, %.100s", rank, name);
	}
	group->base.ctx->progressed++;
}

static void member_arrived(void *arg, struct peer *peer)
{
	struct form_member *member = arg;
	struct group *group = member->group;
	int rank = (int)(member - group->form->member);

	if (member->linked)
		peer_lose(peer, -EPROTO, "%s has rank %d already", group->name, rank);
	else
		form_linked(group, rank, peer);
}

static unsigned words_count(const char *text)
{
	unsigned n = 0;

	for (const char *at = text; *at; at++)
		n += *at != ' ' && (at == text || at[-1] == ' ');
	return n;
}

/* After the last address comes the first, later: a member may have been busy with others that connect to it. */
static bool member_next_address(struct group *group, int rank)
{
	struct form_member *member = &group->form->member[rank];
	uint64_t now = time_now();

	if (member->next && words_count(member->next))
		return true;
	if (!words_count(member->addresses)) {
		form_fail(group, -EHOSTUNREACH, "rank %d of %d has told no address", rank, group->base.size);
		return false;
	}
	if (member->next && !member->again) {
		if (!member->pauses.most)
			member->pauses = (struct pauses){PAUSE_FIRST, PAUSE_MOST};
		member->again = now + pauses_take(&member->pauses);
	}
	if (member->next && now < member->again)
		return false;
	member->again = 0;
	member->attempt = member->attempt ? time_after(member->attempt, member->attempt) : ATTEMPT_FIRST;
	strcpy(member->copy, member->addresses);
	member->next = member->copy;
	return true;
}

/* To the next address. There is time for those behind it, too. */
static void member_dial(struct group *group, int rank)
{
	struct group_form *form = group->form;
	struct form_member *member = &form->member[rank];
	unsigned left = words_count(member->next);
	const char *address = strtok_r(member->next, " ", &member->next);
	uint64_t now = time_now(), hello = member->token + (uint64_t)group->base.rank;
	struct dial *dial;

	log_hush_begin();
	if (peer_connect_begin(group->base.ctx, address, hello, &member->dial) != 0) {
		snprintf(member->why, sizeof(member->why), "%s", rdma_get_error());
		if (rdma_get_errno() == EUSERS)
			form_fail(group, -EUSERS, "%s", member->why);
		member->dial = NULL;
	} else {
		member->dial->session->ticket = group->ticket ? group->base.number : 0;
		dial = &member->dial->session->dial;
		dial->until = now + (form->until > now ? (form->until - now) / left : 0);
		dial->first = dial->last = member->attempt;
	}
	log_hush_end();
}

static void member_step(struct group *group, int rank)
{
	struct form_member *member = &group->form->member[rank];

	if (member->linked)
		return;
	if (member->dial && member->dial->state == PEER_CONNECTED) {
		form_linked(group, rank, member->dial);
		return;
	}
	if (member->dial && member->dial->state == PEER_GONE) {
		snprintf(member->why, sizeof(member->why), "%.60s: %.130s", member->dial->name, member->dial->why);
		member->dial = NULL;
	}
	while (!member->dial && !group->form->error && member_next_address(group, rank))
		member_dial(group, rank);
}

/*
 * That it is whole
 */
/* Dial members of higher ranks, and tell rank 0 when this member is connected to all. */
static bool form_over(const void *arg)
{
	struct group *group = (struct group *)(uintptr_t)arg;
	struct group_form *form = group->form;

	for (int rank = group->base.rank + 1; rank < group->base.size && !form->error; rank++)
		member_step(group, rank);
	if (form->linked == group->base.size - 1 && !form->said) {
		struct wire_group_ready ready = {.number = group->base.number};
		struct peer *root = group->base.member[0];

		form->said = true;
		if (root && control_send(root, WIRE_CONTROL_GROUP_READY, &ready, sizeof(ready)) == 0)
			message_flush(root);
	}
	return form->error ||
	       (form->said && (group->base.rank == 0 ? form->ready == group->base.size - 1 : form->told));
}

static int form_ready(struct group *group, int from, const void *body, size_t length)
{
	struct group_form *form = group->form;
	struct wire_group_ready ready;
	char words[GROUP_WORDS];

	if (length < sizeof(ready))
		return -EPROTO;
	memcpy(&ready, body, sizeof(ready));
	if (ready.error) {
		form_fail(group, ready.error < 0 && ready.error > -4096 ? ready.error : -EPROTO, "%s",
			  group_words(body, length, sizeof(ready), words));
	} else if (group->base.rank == 0 && !form->member[from].ready) {
		form->member[from].ready = true;
		form->ready++;
	} else if (from == 0) {
		form->told = true;
	}
	group->base.ctx->progressed++;
	return 0;
}

/* From rank 0 to all, from others to rank 0. */
void form_say_outcome(const struct group *group, int error, const char *why)
{
	struct {
		struct wire_group_ready ready;
		char words[GROUP_WORDS];
	} say = {.ready = {.number = group->base.number, .error = error}};
	size_t len = MIN(strlen(why), sizeof(say.words));
	struct peer *root = group->base.member[0];

	memcpy(say.words, why, len);
	if (group->base.rank == 0)
		group_say(group, WIRE_CONTROL_GROUP_READY, &say, sizeof(say.ready) + len);
	else if (error && root && control_send(root, WIRE_CONTROL_GROUP_READY, &say, sizeof(say.ready) + len) == 0)
		message_flush(root);
}

/* The missing members, in words. */
void form_late(struct group *group)
{
	const struct group_form *form = group->form;
	double seconds = (double)group->timeout / TIME_S;

	if (!form->dialing && group->base.rank)
		form_fail(group, -ETIMEDOUT, "rank 0 did not tell the addresses of all within %g s", seconds);
	for (int i = 0; i < group->base.size; i++) {
		if (i == group->base.rank)
			continue;
		if (form->dialing && !form->member[i].linked)
			form_fail(group, -ETIMEDOUT, "rank %d of %d did not connect within %g s%s%s", i,
				  group->base.size, seconds, form->member[i].why[0] ? ": " : "", form->member[i].why);
		else if (!form->dialing && !form->member[i].known)
			form_fail(group, -ETIMEDOUT, "rank %d of %d did not come within %g s", i, group->base.size,
				  seconds);
	}
	for (int i = 1; i < group->base.size && group->base.rank == 0; i++)
		if (!form->member[i].ready)
			form_fail(group, -ETIMEDOUT, "rank %d of %d was not connected to all within %g s", i,
				  group->base.size, seconds);
	form_fail(group, -ETIMEDOUT, "rank 0 did not say within %g s that all are connected", seconds);
}

/* Undo a group that did not form: connections that were made for it end. */
static void form_undo(struct group *group)
{
	char name[sizeof(group->name)], why[512];
	int error = group->form->error;

	snprintf(name, sizeof(name), "%s", group->name);
	snprintf(why, sizeof(why), "%s", group->form->why);
	form_say_outcome(group, error, why);
	for (int i = 0; i < group->base.size; i++) {
		struct peer *peer = group->base.member[i] ? group->base.member[i] : group->form->member[i].dial;

		group->base.member[i] = NULL;
		if (peer && peer->inner && peer->state != PEER_CONNECTED && peer->state != PEER_GONE)
			peer_lose(peer, 0, "%s came to nothing", name);
		else if (peer && peer->inner)
			peer_part(peer);
	}
	group_discard(group);
	rdma_fail(error, "%s: %s", name, why);
}

int form_finish(struct group *group)
{
	struct group_form *form = group->form;
	int rc = 0;

	form->dialing = true;
	for (int rank = 0; rank < group->base.rank; rank++) { /* lower ranks connect to this one */
		if (form->member[rank].linked)
			continue;
		form->member[rank].expected = true;
		peer_expect(group->base.ctx, form->token + (uint64_t)rank, member_arrived, &form->member[rank]);
	}
	if (group->base.rank)
		form->until += FORM_GRACE;
	if (!form->error) {
		do /* addresses are tried again when their pause is over */
			rc = context_wait(group->base.ctx, form_over, group,
					  MIN(form->until, time_now() + MESH_INTERVAL));
		while (rc == -ETIMEDOUT && time_now() < form->until);
	}
	if (rc == -ETIMEDOUT)
		form_late(group);
	else if (rc != 0)
		form_fail(group, rc, "%s", strerror(-rc));
	if (form->error) {
		form_undo(group);
		return -1;
	}
	form_say_outcome(group, 0, "");
	form_free(group);
	group->state = GROUP_WHOLE;
	return 0;
}

/*
 * What members say
 */
int form_control(struct group *group, struct peer *peer, enum wire_control_kind kind, const void *body, size_t length)
{
	struct group_form *form = group->form;
	struct wire_group_answer answer;
	struct wire_group_table table;
	int from, rc = 0;

	/* A member that this one has connected to may say something before member_step() has seen the connection. */
	for (int i = group->base.rank + 1; form && i < group->base.size; i++)
		if (form->member[i].dial == peer && !form->member[i].linked && peer->state == PEER_CONNECTED)
			form_linked(group, i, peer);
	from = group_rank_of(group, peer);
	if (group->state == GROUP_INVITED && peer == group->server && kind == WIRE_CONTROL_GROUP_READY) {
		group_discard(group); /* it did not wait for this program */
		return 0;
	}
	if (group->state != GROUP_FORMING || from < 0)
		return 0;
	if (kind == WIRE_CONTROL_GROUP_READY) {
		rc = form_ready(group, from, body, length);
	} else if (kind == WIRE_CONTROL_GROUP_ADDRESS && group->base.rank == 0) {
		if (length < sizeof(answer))
			return -EPROTO;
		memcpy(&answer, body, sizeof(answer));
		if (answer.addresses_len != length - sizeof(answer) || form->dialing)
			return -EPROTO;
		rc = form_member(group, (uint32_t)from, answer.token, (const char *)body + sizeof(answer),
				 answer.addresses_len);
	} else if (kind == WIRE_CONTROL_GROUP_TABLE && from == 0) {
		if (length < sizeof(table))
			return -EPROTO;
		memcpy(&table, body, sizeof(table));
		rc = form_table(group, (const uint8_t *)body + sizeof(table), length - sizeof(table), table.first,
				table.count);
	}
	group->base.ctx->progressed++;
	return rc;
}

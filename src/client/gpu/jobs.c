/*
 * jobs.c: the table of jobs. It has as many as may be outstanding, so that none is allocated later, and finds one by
 * the id that its caller chose: open addressing, and a removal moves back what was pushed on (Knuth, volume 3, 6.4,
 * algorithm R). Jobs without such an id have one that says their place.
 */
#include "client/gpu/gpu.h"

#include <stdlib.h>

#define OWN_IDS (RDMAD_GPU_ID_MAX + 1)
_Static_assert(RDMAD_GPU_OUTSTANDING < UINT32_MAX - OWN_IDS, "each place has an id below WIRE_GPU_TERMINATE");

int job_table_create(struct job_table *table, uint32_t count)
{
	uint32_t places = 4;

	while (places < 2 * count)
		places *= 2;
	*table = (struct job_table){
		.job = calloc(count, sizeof(table->job[0])),
		.place = calloc(places, sizeof(table->place[0])),
		.count = count,
		.mask = places - 1,
	};
	list_init(&table->free);
	if (!table->job || !table->place) {
		job_table_destroy(table);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < count; i++)
		list_add_tail(&table->free, &table->job[i].node);
	return 0;
}

void job_table_destroy(struct job_table *table)
{
	free(table->job);
	free(table->place);
	*table = (struct job_table){0};
}

/* Successive ids, the usual ones, lie side by side. */
static uint32_t place_home(const struct job_table *table, uint32_t id)
{
	return id & table->mask;
}

/* The place of an id, or the free one where it would be. */
static uint32_t place_of(const struct job_table *table, uint32_t id)
{
	uint32_t at = place_home(table, id);

	while (table->place[at] && table->job[table->place[at] - 1].id != id)
		at = (at + 1) & table->mask;
	return at;
}

static void place_forget(struct job_table *table, uint32_t id)
{
	uint32_t hole = place_of(table, id), at = hole;

	while (table->place[at = (at + 1) & table->mask]) {
		uint32_t home = place_home(table, table->job[table->place[at] - 1].id);

		if (((at - home) & table->mask) < ((at - hole) & table->mask)) /* its home is behind the hole */
			continue;
		table->place[hole] = table->place[at];
		hole = at;
	}
	table->place[hole] = 0;
}

struct job *job_find(const struct job_table *table, uint32_t id)
{
	uint32_t place;

	if (id < OWN_IDS) {
		place = table->place[place_of(table, id)];
		return place ? &table->job[place - 1] : NULL;
	}
	place = id - OWN_IDS;
	return place < table->count && table->job[place].id == id ? &table->job[place] : NULL;
}

struct job *job_take(struct job_table *table, uint32_t id, bool named, int *rc)
{
	struct job *job;
	uint32_t number;

	*rc = -EEXIST;
	if (named && job_find(table, id))
		return NULL;
	*rc = -EAGAIN;
	if (list_empty(&table->free))
		return NULL;
	*rc = 0;
	job = list_first(&table->free, struct job, node);
	list_del(&job->node);
	number = (uint32_t)(job - table->job);
	job->id = named ? id : OWN_IDS + number;
	if (named)
		table->place[place_of(table, id)] = number + 1;
	return job;
}

void job_give(struct job_table *table, struct job *job)
{
	if (job->id < OWN_IDS)
		place_forget(table, job->id);
	*job = (struct job){.state = JOB_FREE};
	/* Behind the others: an id of the library's is not used again at once. */
	list_add_tail(&table->free, &job->node);
}

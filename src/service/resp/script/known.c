/* known.c: the scripts that are known. All workers share them; each compiles what it runs. */
#include "service/resp/script/script.h"

#include <stdlib.h>

#define SLOTS 16384 /* of the table: a power of two */

/* The generator of lrand48(), and where Redis has it begin. */
#define RANDOM_FIRST 0x1234abcd330eu
#define RANDOM_TIMES 0x5deece66du
#define RANDOM_PLUS 0xbu
#define RANDOM_BITS 48

struct known {
	struct list node; /* in `brought` or `loaded`, the oldest first */
	struct known *next;
	bool loaded;
	char sha[RESP_SHA1 + 1];
	size_t len;
	char text[];
};

struct resp_scripts {
	pthread_mutex_t lock;
	struct list brought, loaded;
	struct known *slot[SLOTS];
	uint64_t count, bytes;
	_Atomic uint64_t age, random;
};

int resp_scripts_open(struct resp_shared *shared)
{
	struct resp_scripts *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	list_init(&s->brought);
	list_init(&s->loaded);
	atomic_store(&s->random, RANDOM_FIRST);
	shared->scripts = s;
	return 0;
}

/* The first digits are as good as any hash of it. */
static struct known **slot_of(struct resp_scripts *s, const char *sha)
{
	unsigned at = 0;

	for (unsigned i = 0; i < 4; i++)
		at = at << 4 | (unsigned)(sha[i] <= '9' ? sha[i] - '0' : sha[i] - 'a' + 10);
	return &s->slot[at & (SLOTS - 1)];
}

static struct known *known_find(struct resp_scripts *s, const char *sha)
{
	struct known *k = *slot_of(s, sha);

	while (k && memcmp(k->sha, sha, RESP_SHA1) != 0)
		k = k->next;
	return k;
}

static void known_forget(struct resp_scripts *s, struct known *k)
{
	struct known **at = slot_of(s, k->sha);

	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	list_del(&k->node);
	s->count--;
	s->bytes -= k->len;
	free(k);
	atomic_fetch_add(&s->age, 1);
}

static void forget_all(struct resp_scripts *s)
{
	while (!list_empty(&s->brought))
		known_forget(s, container_of(s->brought.next, struct known, node));
	while (!list_empty(&s->loaded))
		known_forget(s, container_of(s->loaded.next, struct known, node));
}

void resp_scripts_close(struct resp_shared *shared)
{
	struct resp_scripts *s = shared->scripts;

	if (!s)
		return;
	forget_all(s);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static bool known_add(struct resp_scripts *s, const char *sha, const char *text, size_t len, bool loaded)
{
	struct known *k = known_find(s, sha);

	if (k && loaded && !k->loaded) {
		list_del(&k->node);
		list_add_tail(&s->loaded, &k->node);
		k->loaded = true;
	}
	if (k)
		return true;
	while ((s->count >= RESP_SCRIPTS_MAX || s->bytes + len > RESP_SCRIPTS_BYTES) && !list_empty(&s->brought))
		known_forget(s, container_of(s->brought.next, struct known, node));
	if (s->count >= RESP_SCRIPTS_MAX || s->bytes + len > RESP_SCRIPTS_BYTES)
		return false;
	k = malloc(sizeof(*k) + len + 1);
	if (!k)
		return false;
	memcpy(k->sha, sha, RESP_SHA1 + 1);
	memcpy(k->text, text, len);
	k->len = len;
	k->loaded = loaded;
	k->next = *slot_of(s, sha);
	*slot_of(s, sha) = k;
	list_add_tail(loaded ? &s->loaded : &s->brought, &k->node);
	s->count++;
	s->bytes += len;
	return true;
}

bool resp_known_add(struct resp_scripts *s, const char *sha, const char *text, size_t len, bool loaded)
{
	bool added;

	pthread_mutex_lock(&s->lock);
	added = known_add(s, sha, text, len, loaded);
	pthread_mutex_unlock(&s->lock);
	return added;
}

bool resp_known_has(struct resp_scripts *s, const char *sha)
{
	bool has;

	pthread_mutex_lock(&s->lock);
	has = known_find(s, sha);
	pthread_mutex_unlock(&s->lock);
	return has;
}

char *resp_known_text(struct resp_scripts *s, const char *sha, size_t *len)
{
	const struct known *k;
	char *text = NULL;

	pthread_mutex_lock(&s->lock);
	k = known_find(s, sha);
	if (k)
		text = malloc(k->len + 1);
	if (text) {
		memcpy(text, k->text, k->len);
		*len = k->len;
	}
	pthread_mutex_unlock(&s->lock);
	return text;
}

void resp_known_flush(struct resp_scripts *s)
{
	pthread_mutex_lock(&s->lock);
	forget_all(s);
	atomic_fetch_add(&s->age, 1);
	pthread_mutex_unlock(&s->lock);
}

uint64_t resp_known_age(const struct resp_scripts *s)
{
	return atomic_load_explicit(&s->age, memory_order_acquire);
}

void resp_scripts_count(const struct resp_shared *shared, uint64_t *count, uint64_t *bytes)
{
	struct resp_scripts *s = shared->scripts;

	*count = *bytes = 0;
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	*count = s->count;
	*bytes = s->bytes;
	pthread_mutex_unlock(&s->lock);
}

uint32_t resp_known_random(struct resp_scripts *s)
{
	uint64_t was = atomic_load(&s->random), next;

	do
		next = (was * RANDOM_TIMES + RANDOM_PLUS) & ((1ull << RANDOM_BITS) - 1);
	while (!atomic_compare_exchange_weak(&s->random, &was, next));
	return (uint32_t)(next >> (RANDOM_BITS - 31));
}

void resp_known_seed(struct resp_scripts *s, uint32_t seed)
{
	atomic_store(&s->random, (uint64_t)seed << 16 | (RANDOM_FIRST & 0xffff));
}

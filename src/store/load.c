/*
 * load.c: changes that were kept, applied again; nothing else uses the store yet. A change is applied where the key has
 * a lower version only, so what is told twice, or by a copy that is younger than the change, does no harm.
 */
#include "store/internal.h"

void store_load_delete(struct store *store, const void *key, size_t key_len, uint64_t lsn)
{
	struct store_meta meta;

	must(!store->changes.on);
	if (store_stat(store, key, key_len, 0, &meta) && meta.version < lsn)
		store_delete(store, key, key_len, meta.version, 0);
}

void store_load_expire(struct store *store, const void *key, size_t key_len, uint64_t version, uint64_t expires)
{
	struct store_meta meta;

	must(!store->changes.on);
	if (store_stat(store, key, key_len, 0, &meta) && meta.version == version)
		store_expire(store, key, key_len, version, expires, 0);
}

void store_load_flush(struct store *store, uint64_t lsn)
{
	uint64_t cursor = 0, deleted;

	must(store->changes.slot && !store->changes.on);
	atomic_raise(&store->changes.flush, lsn);
	do
		store_flush_some(store, &cursor, &deleted);
	while (cursor);
}

void store_load_end(struct store *store, uint64_t last)
{
	must(!store->changes.on && last < ITEM_VERSION_MAX);
	for (unsigned i = 0; i < store->stripes; i++)
		store->stripe[i].version = MAX(store->stripe[i].version, last);
	atomic_store(&store->changes.flush, UINT64_MAX); /* from here on a delete-all means all */
}

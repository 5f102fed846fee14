/*
 * auth: keys, proofs, rights and sealing. Pure, but for reading files. The only room that includes libsodium.
 * rdmad-auth(7) says what is promised, and what is not.
 *
 * A key is 32 random bytes with a number and the name of a client. Several keys may have one name: that is how keys are
 * rolled. Both ends prove that they have the key by an HMAC over the same transcript, the bytes of the handshake.
 *
 * Tables of keys are in memory of sodium_malloc(), which is locked. Whatever else has a secret wipes it when it is done
 * with it.
 */
#ifndef RDMAD_AUTH_H
#define RDMAD_AUTH_H

#include "base/base.h"

#define AUTH_SECRET 32
#define AUTH_PROOF 32
#define AUTH_NAME_MAX 31 /* characters: letters, digits and "._-" */
#define AUTH_ID_MAX 65000
#define AUTH_ID_MUNGE 0xfffe  /* in place of a key's number: a credential of MUNGE proves the client */
#define AUTH_ID_TICKET 0xffff /* and this one: the key is a ticket that rdmad gave to both */

struct auth_key {
	uint16_t id; /* 1 to AUTH_ID_MAX */
	char name[AUTH_NAME_MAX + 1];
	uint8_t secret[AUTH_SECRET];
};

/* Once, before anything else of this room. 0 or -ENOSYS, logged. Any thread. */
int auth_begin(void);
void auth_wipe(void *secret, size_t size);
bool auth_name_valid(const char *name);

/*
 * key.c: one key as a line of text, rdmad1:ID:NAME:BASE64. The 48 digits are the 32 bytes of the key and 4 bytes of a
 * checksum, by which a line that was cut or mistyped is found.
 */
#define AUTH_LINE_MAX 96 /* with the 0 at its end */

/* 0, -EINVAL: no such name or number; or no random bytes. Logged. */
int auth_key_new(unsigned id, const char *name, struct auth_key *out);
/* A line without its newline. NULL, or what is wrong with it, in words; `out` is wiped then. */
const char *auth_key_parse(const char *line, size_t len, struct auth_key *out);
/* Returns out. */
char *auth_key_format(const struct auth_key *key, char out[static AUTH_LINE_MAX]);
/* Eight hexadecimal digits by which people tell keys apart, and which tell nothing of them. Returns out. */
char *auth_key_fingerprint(const struct auth_key *key, char out[static 9]);

/*
 * keys.c: files of keys. A file is regular, of root or the own user, and of no use to others by its mode; it is not
 * followed where it is a symbolic link. Empty lines and lines that begin with # are passed over.
 */

/* A table of keys, which does not change. */
struct auth_keys;

/* 0, -ENOENT where there is no such file, or another -errno; logged, with the line, but not -ENOENT.
 * A file without a key is -EINVAL. */
int auth_keys_load(const char *path, struct auth_keys **out);
void auth_keys_free(struct auth_keys *keys); /* NULL is passed over */
/* The key of that number; NULL: there is none. Valid with the table. */
const struct auth_key *auth_keys_find(const struct auth_keys *keys, uint16_t id);
/* The keys by their numbers, in order: from 0 to the count. */
size_t auth_keys_count(const struct auth_keys *keys);
const struct auth_key *auth_keys_at(const struct auth_keys *keys, size_t index);

/* The first key of a client's file, as of auth_keys_load(). */
int auth_key_load(const char *path, struct auth_key *out);
/* Makes a new key with a free number, and appends it to the file, which is made where it is not there. Safe against
 * others that do the same. 0 or -errno, logged. */
int auth_keys_append(const char *path, const char *name, struct auth_key *out);

/*
 * proof.c: what both ends compute from the handshake.
 *
 *     TH     = SHA-256("rdmad1 hello" | transport | request | accept without its proof)
 *     proof  = HMAC-SHA-256(key, "rdmad1 server" | TH), or "rdmad1 client"
 *     S      = HMAC-SHA-256(key, "rdmad1 session" | TH | E), where E is the shared secret of X25519, or nothing
 *
 * All lengths are fixed. Each end has sent a nonce, so that no proof fits twice.
 */
#define AUTH_REQUEST 56 /* bytes of the handshake that the transcript has */
#define AUTH_ACCEPT 64

enum auth_side { AUTH_CLIENT, AUTH_SERVER };
enum auth_transport { AUTH_RDMA = 1, AUTH_SOCKET };

struct auth_transcript {
	uint8_t hash[32];
};

void auth_transcript(enum auth_transport transport, const uint8_t request[static AUTH_REQUEST],
		     const uint8_t accept[static AUTH_ACCEPT], struct auth_transcript *out);
/* Makes the proof that `side` sends. */
void auth_prove(const struct auth_key *key, const struct auth_transcript *th, enum auth_side side,
		uint8_t out[static AUTH_PROOF]);
/* Takes the same time for each proof. */
bool auth_proof_fits(const struct auth_key *key, const struct auth_transcript *th, enum auth_side side,
		     const uint8_t proof[static AUTH_PROOF]);

/* Keys of X25519 (RFC 7748) for one connection. 0, or no random bytes. */
int auth_exchange_new(uint8_t secret[static 32], uint8_t public[static 32]);
/* 0, or -EPROTO: the other end's key is a point of low order, which makes no secret. Wipes the own secret. */
int auth_exchange(uint8_t secret[static 32], const uint8_t other[static 32], uint8_t shared[static 32]);

/* Secrets of a connection from its handshake: keys of either direction, by the end that uses them to send. */
struct auth_session {
	struct auth_direction {
		uint8_t record[32];    /* AES-256-GCM, by the kernel's TLS */
		uint8_t record_iv[12]; /* of which TLS calls the first 4 bytes the salt */
		uint8_t sealing[32];
		uint64_t sealed; /* how many texts */
	} direction[2];
};

/* `shared`: of auth_exchange(), or NULL where nothing is encrypted. */
void auth_session(const struct auth_key *key, const struct auth_transcript *th, const uint8_t shared[32],
		  struct auth_session *out);

#define AUTH_SEALED(length) ((length) + 16)
/* Seals a text for the other end, AUTH_SEALED() bytes: XSalsa20-Poly1305, whose nonce is the count of texts in that
 * direction. So the other end opens them in order. `from`: the side that seals. */
void auth_seal(struct auth_session *session, enum auth_side from, const void *text, size_t length, void *out);
/* 0, or -EBADMSG: this is not the next text that `from` has sealed. The count stays then. */
int auth_open(struct auth_session *session, enum auth_side from, const void *sealed, size_t length, void *out);

/* Makes the password of a client whose protocol has no proofs, in place of its key, as 43 digits of base64url:
 * HMAC-SHA-256(key, "rdmad1 resp"). The key cannot be found from it. Wipe it. Returns out. */
#define AUTH_PASSWORD 44 /* with the 0 at its end */
char *auth_password(const struct auth_key *key, char out[static AUTH_PASSWORD]);

/* A key that both ends compute from a secret that rdmad gave one of them: HMAC-SHA-256(secret, label | about | serial).
 * Its id is AUTH_ID_TICKET. */
void auth_ticket(const uint8_t secret[static AUTH_SECRET], uint64_t about, uint32_t serial, struct auth_key *out);

/*
 * munge.c: what MUNGE says of users, in place of a key of rdmad. A credential is a text by which munged, on each host
 * of a realm, says which user has made it, and hands its payload to one user alone, once. That of a client has TH and
 * 32 random bytes, which stand for the key of this connection from then on; that of the server has its proof by them.
 * libmunge is loaded when it is asked for. The calls wait for munged: for ms as a rule, some s where it hangs.
 */
#define AUTH_CREDENTIAL_MAX 2048 /* bytes, with the 0 at its end */
#define AUTH_WHY 256

/* Stands for the key of a client that MUNGE proves: its secret is none. */
extern const struct auth_key auth_munge;

/* The payload of a client's credential. */
struct auth_munge_payload {
	struct auth_transcript th;
	uint8_t secret[AUTH_SECRET];
};
_Static_assert(sizeof(struct auth_munge_payload) == 64, "there is no padding");

/* Whether MUNGE can be used. 0 or -ENOSYS, logged. Any thread, as the other calls. */
int auth_munge_begin(void);
/* Whether the text may be a credential: it is short, and of the right characters. */
bool auth_credential_valid(const char *text, size_t length);
/* A credential of this process's user that `reader` alone may decode. 0; -ENOSYS, -EHOSTDOWN: no libmunge, no munged;
 * or another -errno. `why` is in words then, with what mends it; nothing is logged. */
int auth_munge_encode(const void *payload, size_t length, uid_t reader, char out[static AUTH_CREDENTIAL_MAX],
		      char why[static AUTH_WHY]);
/* The user of a credential, and its payload, which must have this length. 0 or as above. */
int auth_munge_decode(const char *credential, void *payload, size_t length, uid_t *uid, char why[static AUTH_WHY]);

/*
 * clients.c: what each client may do. A line each, the first word is the name: "*" has every client without a line,
 * "@7" the local user 7, "@*" every other local user.
 *
 *     app  kv read=app/,shared/ write=app/ connections=64 stored=2G
 *     lab  kv gpu read= write= flush gpu=2 gpu_memory=1G
 *     mpi  peer channel names=lab.
 */
enum auth_access { AUTH_READ, AUTH_WRITE, AUTH_NAMES, AUTH_ACCESSES };
#define AUTH_PREFIXES_MAX 16
#define AUTH_NO_LIMIT UINT64_MAX

struct auth_prefixes {
	bool all;
	unsigned count;
	struct {
		uint16_t offset, length; /* in the client's text */
	} prefix[AUTH_PREFIXES_MAX];
};

struct auth_client {
	char name[AUTH_NAME_MAX + 1];
	uint32_t services; /* bits, by the place in the names that auth_clients_load() was given */
	bool flush, facts, move;
	struct auth_prefixes prefixes[AUTH_ACCESSES]; /* of keys to read and to write; of channels and groups */
	uint64_t stored;                              /* bytes in the key/value store; AUTH_NO_LIMIT */
	uint64_t connections, gpu_sessions, gpu_memory, bytes, requests; /* the last two a second; AUTH_NO_LIMIT */
	struct auth_spent *spent;                                        /* NULL: these two have no limit */
	char *text;
	_Atomic uint32_t *open; /* proved connections; NULL: they have no limit */
};

extern const struct auth_client auth_everything; /* where there is no file */
extern const struct auth_client auth_nothing;    /* for a client that no line is about */

struct auth_clients;

/* `services`: their names, until NULL. 0, -ENOENT, or another -errno; logged but -ENOENT. */
int auth_clients_load(const char *path, const char *const *services, struct auth_clients **out);
void auth_clients_free(struct auth_clients *clients);
/* The line about the client of that name, else that of "*", else auth_nothing. Valid with the table. NULL for the
 * table: auth_everything. */
const struct auth_client *auth_clients_find(const struct auth_clients *clients, const char *name);
/* The same of a local user: "@UID", "@*", "*". */
const struct auth_client *auth_clients_user(const struct auth_clients *clients, uid_t uid);

static inline bool auth_has_all(const struct auth_client *client)
{
	return client->prefixes[AUTH_READ].all && client->prefixes[AUTH_WRITE].all && client->flush;
}

/*
 * Count what a client with `spent` has used, at the time `now` (ns): threads may do so at once. The time at which it
 * may go on, an hour later at most; not after `now`: at once. After a pause it may use a tenth of a second's share at
 * once. It is the generic cell rate algorithm (ITU-T I.371).
 */
uint64_t auth_spend(const struct auth_client *client, uint64_t bytes, uint64_t requests, uint64_t now);

/* O(prefixes). */
bool auth_may(const struct auth_client *client, enum auth_access access, const void *name, size_t length);
/* Whether there are names that begin with this for which it says yes. */
bool auth_may_some(const struct auth_client *client, enum auth_access access, const void *prefix, size_t length);

/*
 * table.c: keys and rights together, as they hold at one time; and what one connection has of them. A table does not
 * change; a reload makes another one, by which each connection is looked at again.
 */
struct auth_table;

/* Clients that come without a key of the table. */
enum auth_others {
	AUTH_OWN_USERS = 1, /* of this machine's users root and this process's own alone */
	AUTH_MUNGE = 2,     /* those of whom MUNGE says which users they are, from any machine: as users of this one */
};

/* Files of keys and of clients; NULL: no client is asked for a key, unless for MUNGE's; all may do everything.
 * `others`: of enum auth_others. 0 with one reference, or -errno, logged. */
int auth_table_load(const char *keys, const char *clients, unsigned others, const char *const *services,
		    struct auth_table **out);
struct auth_table *auth_table_get(struct auth_table *table);
void auth_table_put(struct auth_table *table);
/* Whether clients of other machines have to prove who they are. */
bool auth_table_asks(const struct auth_table *table);

struct auth_admission {
	struct auth_table *table;         /* counted; NULL: nothing was asked */
	const struct auth_key *key;       /* that the client has to prove; NULL: none; &auth_munge: which user it is */
	const struct auth_client *client; /* its rights, from the proof on */
	uid_t uid;
	bool known;   /* the key is one of the table; or MUNGE has said which user it is */
	bool proved;  /* its key, if it has one */
	bool entered; /* it counts as one of its client's connections */
	bool is_user; /* the kernel says that it is that user of this machine */
};

/* Whether it may use the service of that number. Which client it is may show at its proof: then this is asked again. */
bool auth_may_use(const struct auth_admission *admission, unsigned service);
/* MUNGE says which user a client is, which was admitted with auth_munge for a key. */
void auth_identify(struct auth_admission *admission, uid_t uid);

/* Finds the rights of a client that names this key, or none (0). False: it is to be refused, as it needs a key, or
 * names one where no client is asked for keys. */
bool auth_admit(struct auth_table *table, uint16_t key_id, bool is_user, uid_t uid, struct auth_admission *out);
/* By a password (auth_password()) of any key of that name, in a time that tells nothing of them. False: there is none.
 * As after auth_admit(), its client counts from auth_enter() on. */
bool auth_password_admit(struct auth_table *table, const char *name, size_t name_len, const char *secret, size_t len,
			 struct auth_admission *out);
/* The key at that place, from 0 on: NULL: there are no more, or no keys. And what a client of a name may do. Valid with
 * the table. */
const struct auth_key *auth_table_key(const struct auth_table *table, size_t index);
const struct auth_client *auth_table_client(const struct auth_table *table, const char *name);
/* The client has proved its key, or needs none: it counts from here to auth_admission_end(). False: its client has as
 * many connections as it may. The second one says so beforehand, and counts nothing. */
bool auth_enter(struct auth_admission *admission);
bool auth_has_place(const struct auth_client *client);
/* By another table. False: the key is gone, or is another one, or one is needed now. */
bool auth_readmit(struct auth_admission *admission, struct auth_table *table);
void auth_admission_end(struct auth_admission *admission);
/* The client, for lists of connections: the name of the key that it has proved, "@UID" of a user of this
 * machine or one that MUNGE has named, "" of any other. Returns out. */
char *auth_admission_name(const struct auth_admission *admission, char out[static AUTH_NAME_MAX + 1]);

#endif

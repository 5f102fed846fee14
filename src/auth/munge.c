/*
 * munge.c: credentials of MUNGE: by a key that all hosts of a realm have, munged says which user has made one. libmunge
 * is loaded when it is asked for, so that programs run without it. Each call asks munged by a UNIX socket, and waits.
 */
#include "config.h"

#include "auth/internal.h"

#include <stdlib.h>
#include <unistd.h>

const struct auth_key auth_munge = {.id = AUTH_ID_MUNGE, .name = "munge"};

bool auth_credential_valid(const char *text, size_t length)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";

	if (length < 8 || length >= AUTH_CREDENTIAL_MAX || memcmp(text, "MUNGE:", 6) != 0 || text[length - 1] != ':')
		return false;
	for (size_t i = 6; i < length - 1; i++)
		if (!text[i] || !strchr(digits, text[i]))
			return false;
	return true;
}

#ifdef HAVE_MUNGE

#include <dlfcn.h>
#include <munge.h>
#include <pthread.h>

static struct {
	void *library;
	char why[AUTH_WHY]; /* it is not there */
	munge_err_t (*encode)(char **, munge_ctx_t, const void *, int);
	munge_err_t (*decode)(const char *, munge_ctx_t, void **, int *, uid_t *, gid_t *);
	const char *(*strerror)(munge_err_t);
	munge_ctx_t (*ctx_create)(void);
	void (*ctx_destroy)(munge_ctx_t);
	munge_err_t (*ctx_set)(munge_ctx_t, int, ...);
	const char *(*ctx_strerror)(munge_ctx_t);
} munge;

static void munge_load(void)
{
	static const struct {
		const char *name;
		void *at;
	} functions[] = {
		{"munge_encode", &munge.encode},
		{"munge_decode", &munge.decode},
		{"munge_strerror", &munge.strerror},
		{"munge_ctx_create", &munge.ctx_create},
		{"munge_ctx_destroy", &munge.ctx_destroy},
		{"munge_ctx_set", &munge.ctx_set},
		{"munge_ctx_strerror", &munge.ctx_strerror},
	};
	void *library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
	void *function = library;

	for (size_t i = 0; i < ARRAY_SIZE(functions) && function; i++) {
		function = dlsym(library, functions[i].name);
		memcpy(functions[i].at, &function, sizeof(function)); /* C has no cast from a datum to a function */
	}
	if (function)
		munge.library = library;
	else
		snprintf(munge.why, sizeof(munge.why), "%s", dlerror());
}

int auth_munge_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, munge_load);
	if (munge.library)
		return 0;
	return log_fail(-ENOSYS, "auth",
			"MUNGE is asked for, and its library cannot be loaded: %s; apt install libmunge2", munge.why);
}

/* In words, and what mends it. */
static int munge_failed(munge_err_t error, munge_ctx_t ctx, char why[static AUTH_WHY])
{
	const char *text = ctx ? munge.ctx_strerror(ctx) : NULL;

	if (!text)
		text = munge.strerror(error);
	switch ((int)error) {
	case EMUNGE_SOCKET:
		snprintf(why, AUTH_WHY, "munged does not answer: %s; systemctl start munge", text);
		return -EHOSTDOWN;
	case EMUNGE_CRED_EXPIRED:
		snprintf(why, AUTH_WHY, "the credential has expired: the clocks of the hosts differ; see timedatectl");
		return -EACCES;
	case EMUNGE_CRED_REWOUND:
		snprintf(why, AUTH_WHY,
			 "the credential is of a time to come: the clocks of the hosts differ; see timedatectl");
		return -EACCES;
	case EMUNGE_CRED_REPLAYED:
		snprintf(why, AUTH_WHY, "the credential was shown before: it is replayed");
		return -EACCES;
	case EMUNGE_CRED_INVALID:
		snprintf(why, AUTH_WHY,
			 "the credential is of another realm, or was changed: the hosts need the same "
			 "/etc/munge/munge.key; then systemctl restart munge");
		return -EACCES;
	case EMUNGE_CRED_UNAUTHORIZED:
		snprintf(why, AUTH_WHY, "the credential is for another user to read, and not for user %u", geteuid());
		return -EACCES;
	default:
		snprintf(why, AUTH_WHY, "munged refuses: %s", text);
		return -EACCES;
	}
}

static munge_ctx_t munge_context(char why[static AUTH_WHY])
{
	const char *socket = secure_getenv("RDMAD_MUNGE_SOCKET");
	munge_ctx_t ctx = auth_munge_begin() == 0 ? munge.ctx_create() : NULL;
	munge_err_t error;

	snprintf(why, AUTH_WHY, "%s", munge.library ? "no memory" : "libmunge cannot be loaded; apt install libmunge2");
	if (!ctx || !socket || !*socket)
		return ctx;
	error = munge.ctx_set(ctx, MUNGE_OPT_SOCKET, socket);
	if (error == EMUNGE_SUCCESS)
		return ctx;
	munge_failed(error, ctx, why);
	munge.ctx_destroy(ctx);
	return NULL;
}

int auth_munge_encode(const void *payload, size_t length, uid_t reader, char out[static AUTH_CREDENTIAL_MAX],
		      char why[static AUTH_WHY])
{
	munge_ctx_t ctx = munge_context(why);
	char *credential = NULL;
	munge_err_t error;
	int rc = 0;

	if (!ctx)
		return -ENOSYS;
	/* munged may be configured for no cipher, and payloads are secret. */
	error = munge.ctx_set(ctx, MUNGE_OPT_CIPHER_TYPE, MUNGE_CIPHER_AES128);
	if (error == EMUNGE_SUCCESS)
		error = munge.ctx_set(ctx, MUNGE_OPT_ZIP_TYPE, MUNGE_ZIP_NONE);
	if (error == EMUNGE_SUCCESS)
		error = munge.ctx_set(ctx, MUNGE_OPT_UID_RESTRICTION, reader);
	if (error == EMUNGE_SUCCESS)
		error = munge.encode(&credential, ctx, payload, (int)length);
	if (error != EMUNGE_SUCCESS) {
		rc = munge_failed(error, ctx, why);
	} else if (!auth_credential_valid(credential, strlen(credential))) {
		snprintf(why, AUTH_WHY, "munged has made a credential of %zu bytes, beyond %u", strlen(credential),
			 AUTH_CREDENTIAL_MAX - 1);
		rc = -EMSGSIZE;
	} else {
		memcpy(out, credential, strlen(credential) + 1);
	}
	munge.ctx_destroy(ctx);
	free(credential);
	return rc;
}

int auth_munge_decode(const char *credential, void *payload, size_t length, uid_t *uid, char why[static AUTH_WHY])
{
	munge_ctx_t ctx = munge_context(why);
	void *bytes = NULL;
	int rc = 0, count = 0;
	munge_err_t error;
	gid_t gid;

	if (!ctx)
		return -ENOSYS;
	error = munge.decode(credential, ctx, &bytes, &count, uid, &gid);
	if (error != EMUNGE_SUCCESS) {
		rc = munge_failed(error, ctx, why);
	} else if (!bytes || (size_t)count != length) {
		snprintf(why, AUTH_WHY, "the credential has a payload of %d bytes in place of %zu", count, length);
		rc = -EACCES;
	} else {
		memcpy(payload, bytes, length);
	}
	if (bytes)
		auth_wipe(bytes, (size_t)count);
	free(bytes);
	munge.ctx_destroy(ctx);
	return rc;
}

#else

int auth_munge_begin(void)
{
	return log_fail(-ENOSYS, "auth",
			"MUNGE is asked for, and was left out when this program was built: configure --with-munge");
}

static int left_out(char why[static AUTH_WHY])
{
	snprintf(why, AUTH_WHY, "MUNGE was left out when this program was built");
	return -ENOSYS;
}

int auth_munge_encode(const void *payload, size_t length, uid_t reader, char out[static AUTH_CREDENTIAL_MAX],
		      char why[static AUTH_WHY])
{
	(void)payload, (void)length, (void)reader, (void)out;
	return left_out(why);
}

int auth_munge_decode(const char *credential, void *payload, size_t length, uid_t *uid, char why[static AUTH_WHY])
{
	(void)credential, (void)payload, (void)length, (void)uid;
	return left_out(why);
}

#endif

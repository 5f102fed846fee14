/*
 * tls.c: the kernel's TLS record layer (tls.rst of its documentation) on a TCP socket: TLS 1.3 with AES-256-GCM, by
 * keys that the caller has agreed on with its peer. There is no handshake of TLS, and no other record than those of
 * data. So all that reads and writes the socket stays as it is.
 *
 * What follows the server's ACCEPT is encrypted. So a client reads no further than that until its caller has said
 * whether it is (soft_stage_size, soft_reads).
 */
#include "fabric/soft/soft.h"

#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#ifndef SOL_TLS
#define SOL_TLS 282
#endif

static const char ulp[] = "tls";

/* One direction: TLS_TX, TLS_RX. */
static int soft_tls_set(int fd, int direction, const struct fabric_secret *secret)
{
	struct tls12_crypto_info_aes_gcm_256 info = {
		.info = {.version = TLS_1_3_VERSION, .cipher_type = TLS_CIPHER_AES_GCM_256},
	};
	int rc;

	_Static_assert(sizeof(info.key) == sizeof(secret->key) &&
			       sizeof(info.salt) + sizeof(info.iv) == sizeof(secret->iv),
		       "a key of AES-256-GCM, and 12 bytes");
	memcpy(info.key, secret->key, sizeof(info.key));
	memcpy(info.salt, secret->iv, sizeof(info.salt));
	memcpy(info.iv, secret->iv + sizeof(info.salt), sizeof(info.iv));
	rc = setsockopt(fd, SOL_TLS, direction, &info, sizeof(info)) == 0 ? 0 : -errno;
	explicit_bzero(&info, sizeof(info));
	return rc;
}

/* Both directions. */
static int soft_tls_begin(int fd, const struct fabric_secret *sends, const struct fabric_secret *receives)
{
	int rc;

	if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, ulp, sizeof(ulp)) != 0)
		return errno == ENOENT ? -EOPNOTSUPP : -errno;
	rc = soft_tls_set(fd, TLS_TX, sends);
	return rc == 0 ? soft_tls_set(fd, TLS_RX, receives) : rc;
}

/* On a connection to this process itself. Where the kernel has yet to load its modules this takes long, but no
 * connection waits for it. */
static int soft_tls_try(void)
{
	static const struct fabric_secret secret;
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr *sa = (struct sockaddr *)&any;
	socklen_t len = sizeof(any);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int rc = -EIO;

	if (listener >= 0 && fd >= 0 && bind(listener, sa, len) == 0 && listen(listener, 1) == 0 &&
	    getsockname(listener, sa, &len) == 0 && connect(fd, sa, len) == 0)
		rc = soft_tls_begin(fd, &secret, &secret);
	if (fd >= 0)
		close(fd);
	if (listener >= 0)
		close(listener);
	return rc;
}

int soft_encrypts(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static int known = 1; /* not tried yet */
	int rc;

	pthread_mutex_lock(&lock);
	if (known > 0)
		known = soft_tls_try() == 0 ? 0 : -EOPNOTSUPP;
	rc = known;
	pthread_mutex_unlock(&lock);
	return rc;
}

bool soft_exposed(const struct sockaddr *sa)
{
	return sa->sa_family != AF_UNIX && !address_is_loopback(sa);
}

bool soft_request_exposed(const struct fabric_request *request)
{
	const struct soft_request *r = container_of(request, const struct soft_request, base);

	return !r->peer.local && soft_exposed((const struct sockaddr *)&r->peer.address);
}

int soft_encrypt(struct fabric_endpoint *endpoint, const struct fabric_secret *sends,
		 const struct fabric_secret *receives)
{
	struct soft_endpoint *ep = container_of(endpoint, struct soft_endpoint, base);
	int rc = 0;

	if (ep->state != SOFT_OPEN)
		return -ENOTCONN;
	if (sends) {
		must(ep->out.part == SOFT_PART_NONE && !ep->share && !ep->rings);
		rc = soft_tls_begin(ep->source.fd, sends, receives);
		ep->encrypted = rc == 0;
	}
	ep->undecided = false;
	soft_ready(ep); /* what came meanwhile has no edge any more */
	soft_settle(ep->queue);
	return rc;
}

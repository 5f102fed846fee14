/*
 * share.c: how the two ends of a connection within one machine come to share memory. The server makes it, and takes no
 * descriptor from another process. What follows ACCEPT is asked and answered before the client's caller hears of the
 * connection.
 *
 * Over a UNIX socket the memory is passed along with ACCEPT. A client that can map it sends a SHARE, and the server's
 * answer, SHARE 1, is its last frame by the socket. A client that does not ask, such as an older one, goes on by the
 * socket.
 *
 * By the addresses of a TCP socket a server sees that a client may be on its machine, and says so in ACCEPT:
 *
 *   client                                           server
 *     binds a datagram socket to a name that
 *     cannot be guessed; SHARE name, secret      ->
 *                                                      makes the memory, and passes it to that name with the secret
 *                                               <-     SHARE 1, its last frame by TCP. Or SHARE 0: TCP stays
 *     maps the memory, and both use its rings
 *
 * The names are those of one network namespace, as loopback addresses are. Addresses alone prove nothing: a tunnel from
 * elsewhere has them, too. But then none has that name at the server's end, and TCP carries all. A program that lists
 * the names of a machine can send to them, but the secret only the connection has carried. Memory is given only to the
 * connection that asked.
 */
#include "fabric/soft/soft.h"

#include <linux/filter.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define SOFT_SHARES 128 /* endpoints of TCP that a queue gives rings, up to 1 MiB each; others stay with TCP */

/* The abstract name; its length as an address. */
static socklen_t soft_share_name(uint64_t name, struct sockaddr_un *out)
{
	int n;

	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "rdmad-%016llx", (unsigned long long)name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

bool soft_share_offer(struct soft_endpoint *ep, int *memory)
{
	if (!ep->memory)
		return false;
	if (ep->unix_socket)
		ep->offer = soft_rings_create(memory);
	if (ep->unix_socket ? !ep->offer : ep->queue->given >= SOFT_SHARES || !local_is_near(ep->source.fd))
		return false;
	ep->share = SOFT_SHARE_OFFERED;
	return true;
}

void soft_share_forget(struct soft_endpoint *ep)
{
	soft_rings_free(ep->offer);
	ep->offer = NULL;
	ep->share = SOFT_SHARE_NOT;
}

/* Of what is sent to it the kernel keeps the datagram with the secret, and nothing else: not what others pass, which
 * to give back may take as long as they like. */
static bool soft_share_filter(int fd, uint64_t secret)
{
	/* The filter reads words in the network's order. */
	uint32_t first = be32toh(htole32((uint32_t)secret)), second = be32toh(htole32((uint32_t)(secret >> 32)));
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, sizeof(secret), 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, sizeof(first)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, sizeof(secret)),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = {.len = ARRAY_SIZE(code), .filter = code};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
}

/* Can the server pass memory to where the frame says? */
static bool soft_share_door(struct soft_endpoint *ep, struct soft_frame *f)
{
	uint64_t random[2]; /* name, secret */
	struct sockaddr_un un;
	socklen_t len;
	int fd;

	if (!local_is_near(ep->source.fd) || getrandom(random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		return false;
	len = soft_share_name(random[0], &un);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	if (!soft_share_filter(fd, random[1]) || bind(fd, (struct sockaddr *)&un, len) != 0) {
		close(fd);
		return false;
	}
	ep->share_fd = fd;
	f->addr = random[0];
	f->key = (uint32_t)random[1];
	f->arg = (uint32_t)(random[1] >> 32);
	return true;
}

void soft_share_ask(struct soft_endpoint *ep)
{
	uint8_t bytes[SOFT_HEADER];
	struct soft_frame f = {.op = SOFT_SHARE};

	if (!ep->memory)
		return;
	if (ep->unix_socket) {
		ep->offer = ep->share_fd >= 0 ? soft_rings_take(ep->share_fd) : NULL; /* it came with ACCEPT */
		ep->share_fd = -1;
	}
	if (ep->unix_socket ? !ep->offer : !soft_share_door(ep, &f))
		return;
	ep->share = SOFT_SHARE_ASKED;
	soft_frame_encode(bytes, &f);
	/* Only CONNECT was sent before it, so there is room, or the socket is broken: the reader will see that. */
	if (send(ep->source.fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(bytes))
		shutdown(ep->source.fd, SHUT_RDWR);
}

/* Passes memory with the secret to the socket of that name. */
static void soft_share_give(struct soft_endpoint *ep, const struct soft_frame *f)
{
	uint64_t secret = htole64(f->key | (uint64_t)f->arg << 32);
	struct sockaddr_un un;
	socklen_t len = soft_share_name(f->addr, &un);
	struct soft_rings *r;
	int memory, fd;

	if (ep->queue->given >= SOFT_SHARES)
		return;
	r = soft_rings_create(&memory);
	if (!r)
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (local_pass(fd, &un, len, &secret, sizeof(secret), &memory, 1) == (ssize_t)sizeof(secret)) {
		ep->offer = r;
		ep->given = true;
		ep->queue->given++;
	} else {
		soft_rings_free(r);
	}
	if (fd >= 0)
		close(fd);
	close(memory);
}

ssize_t soft_share_read(struct soft_endpoint *ep, void *bytes, size_t size)
{
	int passed, came;
	ssize_t n = local_take(ep->source.fd, bytes, size, &passed, 1, &came);

	if (came <= 0)
		return n;
	if (ep->share_fd >= 0)
		close(ep->share_fd);
	ep->share_fd = passed;
	return n;
}

/* The memory that was passed: 0, or -errno. */
static int soft_share_take(struct soft_endpoint *ep)
{
	uint64_t secret;
	int passed, came;

	if (local_take(ep->share_fd, &secret, sizeof(secret), &passed, 1, &came) < 0 && errno != EAGAIN)
		return -errno;
	if (came <= 0)
		return came < 0 ? came : -EPROTO;
	ep->offer = soft_rings_take(passed);
	return ep->offer ? 0 : -ENOMEM;
}

enum soft_step soft_begin_share(struct soft_endpoint *ep, const struct soft_frame *f)
{
	ep->left = 0;
	if (ep->share == SOFT_SHARE_OFFERED && !f->len) {
		if (!ep->unix_socket)
			soft_share_give(ep, f);
		ep->share = SOFT_SHARE_DUE;
		ep->tx_wanted = true;
		return SOFT_GO;
	}
	if (ep->share == SOFT_SHARE_ASKED && !f->len && f->arg <= 1)
		return SOFT_GO;
	soft_fail_protocol(ep, "a word about shared memory that is not expected");
	return SOFT_END;
}

static void soft_share_close(struct soft_endpoint *ep)
{
	if (ep->share_fd >= 0)
		close(ep->share_fd);
	ep->share_fd = -1;
}

enum soft_step soft_finish_share(struct soft_endpoint *ep)
{
	int rc = 0;

	if (ep->share != SOFT_SHARE_ASKED)
		return SOFT_GO;
	if (!ep->frame.arg)
		soft_share_forget(ep);
	else if (!ep->offer)
		rc = soft_share_take(ep);
	if (rc != 0) {
		/* There is no way back: the server uses the memory already. */
		log_error("soft", "cannot take the memory to share with the peer: %s", strerror(-rc));
		ep->share = SOFT_SHARE_NOT;
		soft_fail(ep, &(struct soft_cause){.error = rc, .event = FABRIC_UNREACHABLE, .untold = !ep->announced});
		return SOFT_END;
	}
	soft_share_close(ep);
	ep->share = SOFT_SHARE_NOT;
	soft_announce(ep);
	ep->tx_wanted = true; /* an ACK may be owed */
	if (!ep->offer)
		return SOFT_GO;
	ep->phase = SOFT_PHASE_HEADER; /* behind it the socket only wakes */
	soft_rings_open(ep, true);
	return SOFT_END;
}

void soft_share_told(struct soft_endpoint *ep)
{
	ep->share = SOFT_SHARE_NOT;
	if (!ep->offer)
		return;
	if (ep->phase != SOFT_PHASE_HEADER || ep->header_have || ep->leftover_len)
		soft_fail_protocol(ep, "went on by its socket when it had asked to share memory");
	else
		soft_rings_open(ep, false);
}

/* End a share. A client's was a connection, though no event told of it. */
void soft_share_leave(struct soft_endpoint *ep)
{
	if (ep->share == SOFT_SHARE_ASKED)
		soft_announce(ep);
	soft_share_close(ep);
	ep->share = SOFT_SHARE_NOT;
	ep->queue->given -= ep->given;
	ep->given = false;
}

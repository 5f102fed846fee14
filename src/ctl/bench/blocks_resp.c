/*
 * blocks_resp.c: the steps of "bench blocks" at a server that speaks RESP, such as redis-server. The commands of a step
 * are sent together and then answered. Reading commands are short, and so are the answers to writing ones, so
 * neither side waits for the other with a full socket.
 */
#include "ctl/bench/blocks.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define LINE_MAX_LEN 256u
#define RESP_PORT 6379

static int client_fail(struct blocks_client *client, int error, const char *why)
{
	client->why = why;
	return error;
}

static int resp_open(struct blocks_client *client)
{
	struct address_socket found[ADDRESS_SOCKETS];
	struct address address;
	int n, on = 1, fd = -EHOSTUNREACH;

	if (address_parse(bench.server, &address) != 0)
		return ctl_usage_hint();
	if (!address.path && !address.port_given)
		address.port = RESP_PORT;
	n = address_resolve(&address, found);
	for (int i = 0; i < n && fd < 0; i++)
		fd = address_connect(&found[i], ctl_answer_limit());
	if (fd < 0) {
		ctl_say("%s: no server that speaks RESP at %s%s: %s", ctl_command_name(), bench.server,
			address.path || address.port_given ? "" : ", port 6379", strerror(-fd));
		return (int)ctl_exit_of(fd == -ENOENT ? -ECONNREFUSED : fd); /* a path that is not there */
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	client->fd = fd;
	client->transport = address.path ? "RESP, unix" : "RESP, tcp";
	return CTL_OK;
}

static int send_all(struct blocks_client *client, struct iovec *at, size_t count)
{
	while (count) {
		struct msghdr message = {.msg_iov = at, .msg_iovlen = count};
		ssize_t n = sendmsg(client->fd, &message, MSG_NOSIGNAL);

		if (n < 0)
			return client_fail(client, errno == EAGAIN ? -ETIMEDOUT : -errno, NULL);
		for (; count && (size_t)n >= at->iov_len; at++, count--)
			n -= (ssize_t)at->iov_len;
		if (count) {
			at->iov_base = (char *)at->iov_base + n;
			at->iov_len -= (size_t)n;
		}
	}
	return 0;
}

static int receive_all(struct blocks_client *client, void *to, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t n = recv(client->fd, (char *)to + got, size - got, MSG_WAITALL);

		if (n == 0)
			return client_fail(client, -ECONNRESET, "the server ended the connection");
		if (n < 0)
			return client_fail(client, errno == EAGAIN ? -ETIMEDOUT : -errno, NULL);
		got += (size_t)n;
	}
	return 0;
}

/* The first line of an answer, without its end, byte by byte so that nothing behind it is taken. An error of the server
 * is one of the call. */
static int receive_line(struct blocks_client *client, char line[static LINE_MAX_LEN])
{
	static _Thread_local char said[LINE_MAX_LEN];

	for (size_t n = 0; n < LINE_MAX_LEN; n++) {
		int rc = receive_all(client, line + n, 1);

		if (rc != 0)
			return rc;
		if (n == 0 || line[n] != '\n' || line[n - 1] != '\r')
			continue;
		line[n - 1] = '\0';
		memcpy(said, line, n);
		return line[0] == '-' ? client_fail(client, strstr(line, "OOM") ? -ENOSPC : -EPROTO, said + 1) : 0;
	}
	return client_fail(client, -EPROTO, "an answer has a longer line than RESP's have here");
}

/* "$5\r\nword\r\n" of a command, behind `at`. */
static char *add_word(char *at, const char *word, size_t len)
{
	at += sprintf(at, "$%zu\r\n", len);
	memcpy(at, word, len);
	memcpy(at + len, "\r\n", 2);
	return at + len + 2;
}

/* One command for each block, with its key alone. */
static int send_commands(struct blocks_client *client, const char *name, const struct block *blocks, uint32_t count)
{
	char *text = malloc((size_t)count * 2 * BLOCKS_KEY_MAX + 1), *at = text;
	struct iovec whole;
	int rc;

	if (!text)
		return client_fail(client, -ENOMEM, NULL);
	for (uint32_t i = 0; i < count; i++) {
		at += sprintf(at, "*2\r\n");
		at = add_word(at, name, strlen(name));
		at = add_word(at, blocks[i].key, blocks[i].key_len);
	}
	whole = (struct iovec){text, (size_t)(at - text)};
	rc = send_all(client, &whole, 1);
	free(text);
	return rc;
}

/* Each answer is a number: 0 of a key that is not there. */
static int receive_numbers(struct blocks_client *client, struct block *blocks, uint32_t count)
{
	char line[LINE_MAX_LEN];

	for (uint32_t i = 0; i < count; i++) {
		int rc = receive_line(client, line);

		if (rc != 0)
			return rc;
		if (strcmp(line, ":0") != 0 && strcmp(line, ":1") != 0)
			return client_fail(client, -EPROTO, "the server's answer is not a number");
		blocks[i].status = line[1] == '1' ? 0 : -ENOENT;
	}
	return 0;
}

static int64_t resp_look_up(struct blocks_client *client, struct block *blocks, uint32_t count)
{
	int rc = send_commands(client, "EXISTS", blocks, count);
	uint32_t found = 0;

	if (rc == 0)
		rc = receive_numbers(client, blocks, count);
	while (rc == 0 && found < count && blocks[found].status == 0)
		found++;
	return rc == 0 ? (int64_t)found : rc;
}

static int resp_load(struct blocks_client *client, struct block *blocks, uint32_t count)
{
	int rc = send_commands(client, "GET", blocks, count);
	char line[LINE_MAX_LEN], end[2], expected[32];

	snprintf(expected, sizeof(expected), "$%llu", (unsigned long long)bench.size);
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		rc = receive_line(client, line);
		blocks[i].status = strcmp(line, "$-1") == 0 ? -ENOENT : 0;
		if (rc != 0 || blocks[i].status != 0)
			continue;
		if (strcmp(line, expected) != 0)
			return client_fail(client, -EPROTO, "a value has another length than it was given");
		rc = receive_all(client, blocks[i].bytes, bench.size);
		if (rc == 0)
			rc = receive_all(client, end, sizeof(end));
	}
	return rc;
}

/* The value is sent from where it is. */
static int resp_store(struct blocks_client *client, struct block *blocks, uint32_t count)
{
	char line[LINE_MAX_LEN];
	int rc = 0;

	for (uint32_t i = 0; i < count && rc == 0; i++) {
		char text[2 * BLOCKS_KEY_MAX], *at = text + sprintf(text, "*3\r\n");
		struct iovec parts[3];

		at = add_word(at, "SET", 3);
		at = add_word(at, blocks[i].key, blocks[i].key_len);
		at += sprintf(at, "$%llu\r\n", (unsigned long long)bench.size);
		parts[0] = (struct iovec){text, (size_t)(at - text)};
		parts[1] = (struct iovec){blocks[i].bytes, bench.size};
		parts[2] = (struct iovec){"\r\n", 2};
		rc = send_all(client, parts, ARRAY_SIZE(parts));
	}
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		rc = receive_line(client, line);
		blocks[i].status = 0;
		if (rc == 0 && strcmp(line, "+OK") != 0)
			rc = client_fail(client, -EPROTO, "the server's answer to SET is not OK");
	}
	return rc;
}

static int resp_drop(struct blocks_client *client, struct block *blocks, uint32_t count)
{
	int rc = send_commands(client, "DEL", blocks, count);

	return rc == 0 ? receive_numbers(client, blocks, count) : rc;
}

static void resp_close(struct blocks_client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
}

const struct blocks_way blocks_resp = {
	.open = resp_open,
	.look_up = resp_look_up,
	.load = resp_load,
	.store = resp_store,
	.drop = resp_drop,
	.close = resp_close,
};

/* message_server.c: gets messages of one client and answers each. Usage: message_server URL */
#include <rdmad/channel.h>
#include <stdio.h>

#define CAPACITY 1024
#define SECONDS 1000000ull

int main(int argc, char **argv)
{
	struct rdmad_channel_listener *listener;
	struct rdmad_channel *channel;
	char message[32];
	int rc;

	if (argc < 2 || rdmad_channel_listen(argv[1], CAPACITY, NULL, &listener) != 0)
		goto failed;
	printf("listening on %s\n", rdmad_channel_listener_url(listener));
	fflush(stdout);
	if (rdmad_channel_accept(listener, 60 * SECONDS, &channel) != 0)
		goto failed;
	while ((rc = rdmad_channel_get(channel, message, sizeof(message), 60 * SECONDS)) == 0) {
		message[sizeof(message) - 1] = '\0';
		printf("got \"%s\"\n", message);
		snprintf(message, sizeof(message), "hello, client");
		if (rdmad_channel_put(channel, message, sizeof(message), 60 * SECONDS) != 0 ||
		    rdmad_channel_flush(channel, 60 * SECONDS) != 0)
			goto failed;
	}
	printf("the client has gone: %s\n", rdmad_error());
	rdmad_channel_close(channel);
	rdmad_channel_listener_close(listener);
	return 0;

failed:
	fprintf(stderr, "message_server: %s\n", argc < 2 ? "which URL?" : rdmad_error());
	return 1;
}

/* message_client.c: sends three messages and shows the answers. Usage: message_client URL */
#include <rdmad/channel.h>
#include <stdio.h>

#define CAPACITY 1024 /* as the server has it */
#define SECONDS 1000000ull

int main(int argc, char **argv)
{
	struct rdmad_channel *channel;
	char message[32];

	if (argc < 2 || rdmad_channel_open(argv[1], CAPACITY, NULL, &channel) != 0)
		goto failed;
	for (int i = 1; i <= 3; i++) {
		snprintf(message, sizeof(message), "hello, server: %d", i);
		/* Get waits, so what was put is sent: this needs no flush. */
		if (rdmad_channel_put(channel, message, sizeof(message), 60 * SECONDS) != 0 ||
		    rdmad_channel_get(channel, message, sizeof(message), 60 * SECONDS) != 0)
			goto failed;
		message[sizeof(message) - 1] = '\0';
		printf("got \"%s\"\n", message);
	}
	if (rdmad_channel_close(channel) == 0)
		return 0;

failed:
	fprintf(stderr, "message_client: %s\n", argc < 2 ? "which URL?" : rdmad_error());
	return 1;
}

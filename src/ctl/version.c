/* version.c: which rdmactl, library and protocol these are. */
#include "ctl/ctl.h"
#include "wire/wire.h"

#include "config.h"

static int command_version(const struct ctl_arguments *arguments)
{
	if (ctl.json)
		return ctl_json_print(json_pack("{s:s, s:s, s:i}", "rdmactl", PACKAGE_VERSION, "librdmad",
						rdmad_version(), "protocol", WIRE_VERSION));
	printf("rdmactl %s\nlibrdmad %s\nprotocol %d\n", PACKAGE_VERSION, rdmad_version(), WIRE_VERSION);
	return CTL_OK;
}

const struct ctl_command ctl_version_commands[] = {
	{"version", command_version, "", "versions of rdmactl, the library and the protocol", NULL, 0, 0},
	{NULL},
};

/* check_gpu.c: GPUs and the way between them and the network: D21 to D23. */
#include "ctl/doctor/doctor.h"

#include <stdlib.h>

#define PCI "/sys/bus/pci/devices/"

/* How many devices of NVIDIA that are GPUs. */
static unsigned count_gpus(struct doctor *d)
{
	char *names = look_names(&d->look, PCI), vendor[16], class[16];
	unsigned n = 0;

	look_each(name, names)
	{
		look_line(&d->look, vendor, sizeof(vendor), PCI "%s/vendor", name);
		if (strcmp(vendor, "0x10de") != 0)
			continue;
		look_line(&d->look, class, sizeof(class), PCI "%s/class", name);
		n += strncmp(class, "0x03", 4) == 0;
	}
	free(names);
	return n;
}

static unsigned word_at(const unsigned char *bytes, size_t at)
{
	return bytes[at] | (unsigned)bytes[at + 1] << 8 | (unsigned)bytes[at + 2] << 16 | (unsigned)bytes[at + 3] << 24;
}

/* Access control services (extended capability 13) of a bridge: whether they send requests from peer to peer up to the
 * root. Only root can read so much of the configuration space. */
static bool bridge_redirects(const unsigned char *space, size_t len)
{
	size_t at = 0x100;

	for (unsigned left = 64; left && at >= 0x100 && at + 8 <= len; left--) {
		unsigned head = word_at(space, at);

		if ((head & 0xffff) == 13)
			return word_at(space, at + 4) >> 16 & 0x0c; /* request and completion redirect */
		at = head >> 20;
	}
	return false;
}

static void check_bridges(struct doctor *d)
{
	char *names = look_names(&d->look, PCI), class[16], list[400] = "", first[32] = "";

	look_each(name, names)
	{
		unsigned char *space;
		size_t len;

		look_line(&d->look, class, sizeof(class), PCI "%s/class", name);
		if (strncmp(class, "0x0604", 6) != 0)
			continue;
		space = (unsigned char *)look_bytes(&d->look, &len, PCI "%s/config", name);
		if (space && bridge_redirects(space, len)) {
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", *list ? " " : "", name);
			snprintf(first, sizeof(first), "%s", *first ? first : name);
		}
		free(space);
	}
	if (*list)
		finding_add(d, 2102, NAMES("BRIDGE", first), "bridges %s", list);
	free(names);
}

/* Only where a GPU and the network are to meet. */
void check_iommu(struct doctor *d)
{
	char *units = look_names(&d->look, "/sys/class/iommu"), *line = look_text(&d->look, "/proc/cmdline");

	if (d->ports && count_gpus(d)) {
		if (units && *units && line && !strstr(line, "iommu=pt") && !strstr(line, "iommu.passthrough=1"))
			finding_add(d, 2101, NULL, "/sys/class/iommu has %s, and the kernel's command line no iommu=pt",
				    units);
		check_bridges(d);
	}
	free(units);
	free(line);
}

static bool has_libcuda(struct doctor *d)
{
	static const char *const places[] = {
		"/usr/lib/x86_64-linux-gnu",
		"/usr/lib/aarch64-linux-gnu",
		"/usr/lib64",
		"/usr/lib",
		"/lib/x86_64-linux-gnu",
		"/usr/lib/x86_64-linux-gnu/nvidia/current",
	};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (look_there(&d->look, "%s/libcuda.so.1", places[i]))
			return true;
	return false;
}

/* "Disabled, Default, [N/A]" of each GPU. */
static void check_modes(struct doctor *d)
{
	static const char *const query[] = {"nvidia-smi", "--query-gpu=persistence_mode,compute_mode,mig.mode.current",
					    "--format=csv,noheader", NULL};
	int status;
	char *text = look_program(&d->look, query, &status);

	if (text && status == 0 && strncmp(text, "Disabled", 8) == 0)
		finding_add(d, 2204, NULL, "persistence, compute mode, MIG: %.*s", (int)strcspn(text, "\n"), text);
	if (text && status == 0 && strstr(text, "Prohibited"))
		finding_add(d, 2205, NULL, "persistence, compute mode, MIG: %.*s", (int)strcspn(text, "\n"), text);
	free(text);
}

void check_gpus(struct doctor *d)
{
	unsigned gpus = count_gpus(d);
	char backend[32], *error;

	config_value(d, "gpu.backend", backend, sizeof(backend));
	if (!gpus && !look_there(&d->look, "/dev/nvidiactl")) { /* a container has the device and may lack its bus */
		if (strcmp(backend, "cuda") == 0)
			finding_add(d, 2203, NULL, "gpu.backend \"cuda\", GPUs 0");
		return;
	}
	if (!look_there(&d->look, "/proc/driver/nvidia/version")) {
		finding_add(d, 2201, NULL, "GPUs %u, /proc/driver/nvidia is missing", gpus);
		return;
	}
	if (!look_there(&d->look, "/dev/nvidiactl"))
		finding_add(d, 2206, NULL, "/dev/nvidiactl");
	error = look_text(&d->look, "/proc/driver/nvidia/version");
	if (!has_libcuda(d))
		finding_add(d, 2202, NULL, "libcuda.so.1; the kernel has %.*s", error ? (int)strcspn(error, "\n") : 0,
			    error ? error : "");
	free(error);
	check_modes(d);
}

/* rdmad keeps rings and payload in the memory of the host; so this is for programs beside it. */
void check_direct(struct doctor *d)
{
	if (d->ports && look_there(&d->look, "/proc/driver/nvidia/version") &&
	    !look_there(&d->look, "/sys/module/nvidia_peermem"))
		finding_add(d, 2301, NULL, "/sys/module/nvidia_peermem is missing");
}

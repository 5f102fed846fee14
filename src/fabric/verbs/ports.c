/* ports.c: what the ports of the devices are now, for those who compare both ends of a way. */
#include "fabric/verbs/verbs.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdlib.h>

static unsigned mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

static bool is_link_local(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

static void read_gid(const struct ibv_gid_entry *entry, struct fabric_port *port)
{
	if (entry->port_num != port->number)
		return;
	port->roce_2 |= entry->gid_type == IBV_GID_TYPE_ROCE_V2;
	if (!*port->netdev && entry->ndev_ifindex && !if_indextoname(entry->ndev_ifindex, port->netdev))
		*port->netdev = '\0';
	if (port->gids < FABRIC_PORT_GIDS && !is_link_local(&entry->gid) &&
	    (!port->gids || entry->gid_type != IBV_GID_TYPE_ROCE_V1) &&
	    inet_ntop(AF_INET6, entry->gid.raw, port->gid[port->gids], sizeof(port->gid[0])))
		port->gids++;
}

/* `room`: entries that the tables of all ports have; with less none is told. */
static void read_gids(struct ibv_context *ctx, struct fabric_port *port, size_t room)
{
	struct ibv_gid_entry *entry = calloc(MAX(room, 1u), sizeof(*entry));
	ssize_t count = entry ? ibv_query_gid_table(ctx, entry, room, 0) : 0;

	for (ssize_t i = 0; i < count; i++)
		read_gid(&entry[i], port);
	free(entry);
}

static void read_port(struct verbs_device *device, struct fabric_port *port)
{
	struct ibv_context *ctx = device->ctx;
	struct ibv_device_attr about;
	struct ibv_port_attr attr;

	if (!ctx || atomic_load(&device->gone) || ibv_query_port(ctx, (uint8_t)port->number, &attr) != 0)
		return;
	port->there = true;
	port->active = attr.state == IBV_PORT_ACTIVE;
	port->infiniband = attr.link_layer == IBV_LINK_LAYER_INFINIBAND;
	port->mtu = mtu_bytes(attr.active_mtu);
	port->mtu_max = mtu_bytes(attr.max_mtu);
	if (ibv_query_device(ctx, &about) != 0)
		return;
	snprintf(port->firmware, sizeof(port->firmware), "%.63s", about.fw_ver);
	read_gids(ctx, port, (size_t)MAX(attr.gid_tbl_len, 0) * about.phys_port_cnt);
}

unsigned verbs_ports(struct fabric *base, struct fabric_port *out, unsigned most)
{
	struct verbs_fabric *fabric = container_of(base, struct verbs_fabric, base);
	unsigned count = 0;

	pthread_rwlock_rdlock(&fabric->lock);
	for (unsigned i = 0; i < fabric->count; i++)
		for (unsigned n = 1; n <= fabric->device[i].ports && count < most; n++) {
			struct verbs_device *device = &fabric->device[i];

			if (device->only_port && device->only_port != n)
				continue;
			out[count] = (struct fabric_port){.number = n};
			snprintf(out[count].device, sizeof(out[count].device), "%s", device->name);
			read_port(device, &out[count++]);
		}
	pthread_rwlock_unlock(&fabric->lock);
	return count;
}

/* layers.c: the layers of rdma_lib, from the lowest to the highest. */
#include "peer/peer.h"

const struct peer_layer *const peer_layers[PEER_LAYERS] = {
	&peer_links, &peer_messages, &peer_windows, &peer_groups, &peer_collectives,
};

/* elements.h: element by element. */
#ifndef RDMAD_PEER_COLLECTIVES_ELEMENTS_H
#define RDMAD_PEER_COLLECTIVES_ELEMENTS_H

#include <rdma_lib.h>

/* into = into OP from; `left`: into = from OP into, which is another thing for a minimum of NaNs and of zeros with
 * signs. Elements do not overlap. Integers wrap around. */
typedef void reduce_fn(void *into, const void *from, size_t count, bool left);

/* NULL: there is no such operation on this type, or no such type. */
reduce_fn *reduce_find(rdma_type type, rdma_op op);
/* Bytes of an element; 0: no such type. */
size_t reduce_size(rdma_type type);
/* For people: "float", "sum"; "?". */
const char *reduce_type_name(rdma_type type);
const char *reduce_op_name(rdma_op op);

#endif

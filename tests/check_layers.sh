#!/bin/bash
# check_layers.sh: scripts/check-layers finds each kind of violation, in a copy of the sources that has one.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
need python3

copy() {
	rm -rf "$dir/src"
	cp -r "$srcdir/src" "$dir/src"
	chmod -R u+w "$dir/src"
}

# refuses TEXT FILE LINE: with this line at the end of the file.
refuses() {
	copy
	echo "$3" >>"$dir/src/$2"
	ends 1 "$1" "$srcdir/scripts/check-layers" "$dir"
}

copy
ends 0 "0 errors" "$srcdir/scripts/check-layers" "$dir"
refuses "memory may not include conn" memory/pool.c '#include "conn/conn.h"'
refuses "store may not include wire" store/zz.cu '  #  include "wire/wire.h"'
refuses "gpu may not include store" gpu/cuda_kernel.cu '#include <store/store.h>'
refuses "include may not include base" include/rdmad/kv.h '#include "base/base.h"'
refuses "conn/internal.h is conn's own" service/kv.c '#include "conn/internal.h"'
refuses '"internal.h" does not say its room' conn/conn.c '#include "internal.h"'
refuses '"../conn/internal.h" does not say its room' service/kv.c '#include "../conn/internal.h"'
refuses "event2/event.h has its door in daemon/loop" daemon/worker.c '#include <event2/event.h>'
refuses "infiniband/verbs.h has its door in fabric/verbs" fabric/soft.c '#include <infiniband/verbs.h>'
refuses "cuda.h has its door in gpu/cuda" gpu/probe.c '#include <cuda.h>'
refuses "cuda_runtime.h has its door in gpu/cuda" service/zz.cu '#include <cuda_runtime.h>'
refuses "dlfcn.h has its door in gpu/cuda" gpu/probe.c '#include <dlfcn.h>'
refuses "compares the name of a transport" client/connect.c 'static bool zz(const char *by) { return strcmp(by, "tcp") == 0; }'
refuses "compares the name of a transport" ctl/report.c 'static bool zz(const char *url) { return !strncasecmp(url, "rdma://", 7); }'
refuses "compares the name of a transport" daemon/check.c 'static void *zz(void) { return fabric_transport_find("unix"); }'
copy
sed -i '/FABRIC_TRANSPORT_ROWS(ROW)/,/unix/s/ROW("/NONE("/' "$dir/src/fabric/fabric.h"
ends 1 "has no table of transports" "$srcdir/scripts/check-layers" "$dir"
copy
mkdir "$dir/src/attic"
: >"$dir/src/attic/a.c"
ends 1 "src/attic is no room of the table" "$srcdir/scripts/check-layers" "$dir"
copy
rm -r "$dir/src/memory"
ends 1 "a room memory, and there is no file of it" "$srcdir/scripts/check-layers" "$dir"
copy
rm "$dir/src/daemon/loop.c"
ends 1 "a door daemon/loop, and there is no such file" "$srcdir/scripts/check-layers" "$dir"
rm -r "$dir/src"
ends 1 "0 files" "$srcdir/scripts/check-layers" "$dir"
conclude

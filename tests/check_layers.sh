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

# refuses TEXT FILE LINE: with this line at the end of the file, which may be new.
refuses() {
	local file=$dir/src/$2
	cp "$file" "$dir/kept" 2>/dev/null || : >"$dir/kept"
	echo "$3" >>"$file"
	ends 1 "$1" "$srcdir/scripts/check-layers" "$dir"
	if [[ -s $dir/kept ]]; then cp "$dir/kept" "$file"; else rm "$file"; fi
}

copy
ends 0 "0 errors" "$srcdir/scripts/check-layers" "$dir"
refuses "memory may not include conn" memory/pool.c '#include "conn/conn.h"'
refuses "store may not include wire" store/zz.cu '  #  include "wire/wire.h"'
refuses "gpu may not include store" gpu/cuda/kernel.cu '#include <store/store.h>'
refuses "include may not include base" include/rdmad/kv.h '#include "base/base.h"'
refuses "conn/internal.h is conn's own" service/kv/kv.c '#include "conn/internal.h"'
refuses '"internal.h" does not say its room' conn/conn.c '#include "internal.h"'
refuses '"../conn/internal.h" does not say its room' service/kv/kv.c '#include "../conn/internal.h"'
refuses "event2/event.h has its door in daemon/loop" daemon/worker.c '#include <event2/event.h>'
refuses "infiniband/verbs.h has its door in fabric/verbs" fabric/soft/soft.c '#include <infiniband/verbs.h>'
refuses "cuda.h has its door in gpu/cuda" gpu/probe.c '#include <cuda.h>'
refuses "cuda_runtime.h has its door in gpu/cuda" service/zz.cu '#include <cuda_runtime.h>'
refuses "dlfcn.h has its door in gpu/cuda" gpu/probe.c '#include <dlfcn.h>'
refuses "client/kv may not include client/gpu" client/kv/wait.c '#include "client/gpu/gpu.h"'
refuses "peer/links may not include peer/groups" peer/links/dial.c '#include "peer/groups/group.h"'
refuses "uses message_send of peer/messages" peer/links/dial.c 'void zz(void *request) { message_send(request); }'
refuses "uses group_aborted of peer/groups" peer/context.c 'int zz(void *group) { return group_aborted(group, 0); }'
refuses "uses kv_open of client/kv" client/gpu/rpc.c 'int zz(void) { return kv_open("", 0); }'
refuses "compares the name of a transport" engine/connect.c 'static bool zz(const char *by) { return strcmp(by, "tcp") == 0; }'
refuses "compares the name of a transport" ctl/report.c 'static bool zz(const char *url) { return !strncasecmp(url, "rdma://", 7); }'
refuses "compares the name of a transport" daemon/check.c 'static void *zz(void) { return fabric_transport_find("unix"); }'
copy
sed -i '/FABRIC_TRANSPORT_ROWS(ROW)/,/^$/s/ROW("/NONE("/' "$dir/src/fabric/fabric.h"
ends 1 "has no table of transports" "$srcdir/scripts/check-layers" "$dir"
copy
mkdir "$dir/src/conn/more"
: >"$dir/src/conn/more/a.c"
ends 1 "src/conn has other folders than the table" "$srcdir/scripts/check-layers" "$dir"
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

#!/bin/bash
# check_quickstart.sh: scripts/quickstart --cluster, with the programs of the build tree. It shows what it should, and leaves nothing.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need etcd jq

mkdir "$dir/bin" "$dir/tmp"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$rdmad" >"$dir/bin/rdmad"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$rdmactl" >"$dir/bin/rdmactl"
chmod +x "$dir/bin/rdmad" "$dir/bin/rdmactl"
TMPDIR=$dir/tmp PATH="$dir/bin:$PATH" ends 0 "A cluster of three works on this machine" "$srcdir/scripts/quickstart" --cluster --installed
says '^  b     member +2 +8192 +0 ' # who has the slots of the node that was killed
says '^\(exit status 4\)'
says '^small'
[[ -z $(ls "$dir/tmp") ]] || fail "it leaves $(ls "$dir/tmp")"
pgrep -f "$dir/tmp" >/dev/null && fail "it leaves processes: $(pgrep -af "$dir/tmp")"
ends 2 "usage: scripts/quickstart" "$srcdir/scripts/quickstart" --clusters
ends 2 "--keep is for what was built here" "$srcdir/scripts/quickstart" --cluster --keep
conclude

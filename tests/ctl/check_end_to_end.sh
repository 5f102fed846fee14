#!/bin/bash
# End to end with what "make install" installs, in a temporary place: by TCP and UNIX sockets, and by RDMA where there is
# a device whose address RDMAD_GUEST_ADDR says.
set -u
place=$(mktemp -d "${TMPDIR:-/tmp}/rdmad-install.XXXXXX")
trap 'rm -rf "$place"' EXIT
srcdir=${srcdir:-$(dirname "$0")/../..}

MAKEFLAGS='' make -s install DESTDIR="$place" >"$place/log" 2>&1 || { cat "$place/log"; exit 1; }
rdmactl=$(find "$place" -path '*/bin/rdmactl')
rdmad=$(find "$place" -path '*/sbin/rdmad')
library=$(find "$place" -name librdmad.so)
export PATH="${rdmactl%/*}:${rdmad%/*}:$PATH"
export LD_LIBRARY_PATH="${library%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
"$srcdir/tests/ctl/end_to_end.sh" tcp unix ${RDMAD_GUEST_ADDR:+"rdma://$RDMAD_GUEST_ADDR"}

#!/bin/sh
# The fabric's promises, kept by the verbs provider, on the first RDMA device of this machine.
# Skipped (77) where there is none. RDMAD_GUEST_ADDR: the address to use.
# RDMAD_TEST_LARGE=1: more than 2 GiB in one call too. RDMAD_TEST_REMOVAL=1: delete the link rxe0 at the end, but not after a
# failure, as without the device nobody can run this again.
# RDMAD_SHAPES: which other devices it is made to look like, by tests/fake/verbs_shim (VERBS_SHIM=help lists what there is);
# '' for none. The promises are the same on all of them. RDMAD_SHAPE_SUITES: the suites to run there, all unless it is given.
set -eu

program=${CHECK_FABRIC:-./tests/fabric/check_fabric}
shim=${CHECK_SHIM:-./tests/fake/.libs/verbs_shim.so}
# What a ConnectX does; one that has little; iWARP.
shapes=${RDMAD_SHAPES-drop_on_destroy,last_wqe,events no_windows,no_atomics,inline_size=32,max_sge=2,cq_round iwarp}

skip()
{
	echo "skipped: $1"
	exit 77
}

# The first IPv4 address of the first RDMA device's network interface.
first_address()
{
	for file in /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*; do
		netdev=$(cat "$file" 2>/dev/null) || continue
		[ "$netdev" ] || continue
		ip -o -4 addr show dev "$netdev" 2>/dev/null |
			sed -n 's,.* inet \([0-9.]*\).*,\1,p;q'
		return
	done
}

[ -d /sys/class/infiniband ] || skip "this kernel has no RDMA"
[ "$(ls /sys/class/infiniband)" ] || skip "no RDMA device"
[ -e /dev/infiniband/rdma_cm ] || skip "no /dev/infiniband/rdma_cm: is the module rdma_ucm loaded?"
address=${RDMAD_GUEST_ADDR:-$(first_address)}
[ "$address" ] || skip "no RDMA device has an IPv4 address"

failed=0
echo "verbs on $address"
"$program" verbs "$address" || failed=1
for shape in $shapes; do
	echo "verbs on $address, shape $shape"
	for suite in ${RDMAD_SHAPE_SUITES:-''}; do
		# shellcheck disable=SC2086 # none, or a word
		RDMAD_TEST_PART=10 LD_PRELOAD=$shim VERBS_SHIM=$shape "$program" verbs "$address" $suite || failed=1
	done
done
if [ "${RDMAD_TEST_LARGE:-}" ]; then
	"$program" verbs "$address" large || failed=1
fi
if [ "${RDMAD_TEST_REMOVAL:-}" = 1 ] && [ $failed = 0 ]; then
	"$program" verbs "$address" removal || failed=1
fi
exit $failed

#!/bin/bash
# rdmactl doctor on trees of files: a machine where all is well has no finding, and each fault that is put in has the finding that
# names it. And rdmactl explain, and the bundle.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need jq
fake=$dir/machine
# Where rdmad looks for its files, and so doctor.
etc=$("$rdmad" --help | grep -o '/[^ ]*/rdmad\.conf' | head -n 1)
etc=${etc%/rdmad.conf}

# put TEXT FILE...: below the tree.
put() {
	local text=$1 file
	shift
	for file; do
		[[ -d $fake${file%/*} ]] || mkdir -p "$fake${file%/*}"
		printf '%b\n' "$text" >"$fake$file"
	done
}

# A machine with one port of RoCE, 10.1.0.1, and a daemon that listens on it.
machine() {
	rm -rf "$fake"
	[[ -d $dir/well ]] || fake=$dir/well make_machine
	cp -r "$dir/well" "$fake"
}
make_machine() {
	local ib=/sys/class/infiniband/mlx5_0
	put '' /sys/module/{ib_core,ib_uverbs,rdma_cm,rdma_ucm}/initstate /sys/class/misc/rdma_cm/dev /sys/class/infiniband_verbs/uverbs0/dev
	put '' /dev/infiniband/{rdma_cm,uverbs0}
	put '4: ACTIVE' $ib/ports/1/state
	put '5: LinkUp' $ib/ports/1/phys_state
	put '100 Gb/sec (4X EDR)' $ib/ports/1/rate
	put Ethernet $ib/ports/1/link_layer
	put 'fe80:0000:0000:0000:0011:22ff:fe33:4455' $ib/ports/1/gids/0
	put '0000:0000:0000:0000:0000:ffff:0a01:0001' $ib/ports/1/gids/1
	put '0000:0000:0000:0000:0000:0000:0000:0000' $ib/ports/1/gids/2
	put 'RoCE v2' $ib/ports/1/gid_attrs/types/{0,1}
	put eth1 $ib/ports/1/gid_attrs/ndevs/{0,1}
	put '16.0 GT/s PCIe' $ib/device/{current,max}_link_speed
	put 16 $ib/device/{current,max}_link_width
	put 'DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:3b:00.0' $ib/device/uevent
	put 4200 /sys/class/net/eth1/mtu
	put 'Main:\n  +-- 10.1.0.0/24 2 0 2\n     |-- 10.1.0.0\n        /24 link UNICAST\n     |-- 10.1.0.1\n        /32 host LOCAL' /proc/net/fib_trie
	put 'Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth1\t0000010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0' /proc/net/route
	put 'fe80000000000000001122fffe334455 03 40 20 80     eth1' /proc/net/if_inet6
	put Y /sys/module/ib_core/parameters/netns_mode
	put 'Max locked memory         unlimited            unlimited            bytes' /proc/self/limits
	put 'CapEff:\t0000000000000000' /proc/self/status
	put 65530 /proc/sys/vm/max_map_count
	put 'always [madvise] never' /sys/kernel/mm/transparent_hugepage/enabled
	put 'MemAvailable: 9000000 kB\nHugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB' /proc/meminfo
	put 'listen = ["127.0.0.1", "10.1.0.1"];\ntransports = ["rdma", "tcp"];\nrequire_rdma = false;\nkv = {\n\tmemory = "0"; # in effect "4G"\n};' /programs/rdmad_-T
}

doctor() { expect "$1" doctor --root "$fake" --json "${@:2}"; }

# finds NUMBER [TEXT]: this and no other, with the text in its figures or its command. The fault was put into a machine.
finds() {
	local status=0
	[[ ${severity-warning} != failure ]] || status=2
	doctor "$status" || return
	json "[.findings[].id] == [\"RD-$1\"]" "RD-$1 alone"
	json ".findings[0].severity == \"${severity-warning}\"" "RD-$1"
	[[ ! ${2-} ]] || jq -r '.findings[0] | .figures + " " + .command' "$dir/out" | grep -qF -- "$2" || fail "RD-$1 without \"$2\""
	machine
}

test_rdma() {
	local ib=/sys/class/infiniband/mlx5_0 port=/sys/class/infiniband/mlx5_0/ports/1
	machine
	doctor 0 --strict
	json '.findings == [] and .failures == 0 and .warnings == 0' "all is well"
	json '[.checks[] | select(.verdict != "fine" and .verdict != "not checked")] == []' "all is well"

	rm -r "$fake"/sys/module/rdma_ucm "$fake"/sys/class/misc && finds 0101 'modprobe -a rdma_ucm'
	rm -r "$fake$ib" && finds 0102 'rdma link'
	rm "$fake"/dev/infiniband/uverbs0 && finds 0201 /dev/infiniband/uverbs0
	put '1: DOWN' $port/state && finds 0401 'ip link set eth1 up'
	put InfiniBand $port/link_layer && put '2: INIT' $port/state && finds 0402 opensm
	put InfiniBand $port/link_layer && put '1: DOWN' $port/state && finds 0403 'ibstat mlx5_0 1'
	put 8 $ib/device/current_link_width && finds 0501 '0000:3b:00.0'
	put InfiniBand $port/link_layer && put '25 Gb/sec (1X EDR)' $port/rate && finds 0502 '1X'
	sed -i 's/^listen.*/listen = ["127.0.0.1"];/' "$fake/programs/rdmad_-T" && finds 0601 '"127.0.0.1", "10.1.0.1"'
	sed -i 's/^listen.*/listen = ["*"];/' "$fake/programs/rdmad_-T" && doctor 0 --strict && machine
	sed -i 's/^listen.*/listen = ["tcp:\/\/10.1.0.1"];/' "$fake/programs/rdmad_-T" && finds 0601 10.1.0.1
	: >"$fake/proc/net/fib_trie" && finds 0602 'dev eth1'
	put 'IB/RoCE v1' $port/gid_attrs/types/{0,1} && finds 0701 default_roce_mode
	put '0000:0000:0000:0000:0000:0000:0000:0000' $port/gids/1 && finds 0702 'dev eth1'
	severity=note
	put 1500 /sys/class/net/eth1/mtu && finds 1101 'ip link set eth1 mtu 4200'
	unset severity
}

# What a running daemon says that it waits for: as in a bundle. `waits ADDRESS [true|false]`
waits() { put "{\"missing\": [{\"transport\": \"rdma\", \"address\": \"$1\", \"reason\": \"because\", \"waits\": ${2-true}}]}" /status.json; }
test_waiting() {
	machine
	waits 10.1.0.1:7471 && finds 0605 '10.1.0.1:7471, of eth1: because rdmactl doctor, again; if it stays so: systemctl restart rdmad'
	waits 0.0.0.0:7471 && finds 0605 '0.0.0.0:7471, of eth1'
	waits '' && finds 0605 'goes without RDMA: because'
	waits 10.1.0.7:7471 && finds 0603 'ip link set eth1 up; ip address replace 10.1.0.7/24 dev eth1'
	printf '     |-- 10.9.0.1\n        /32 host LOCAL\n' >>"$fake/proc/net/fib_trie"
	printf 'eth5\t0000090A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n' >>"$fake/proc/net/route"
	waits 10.9.0.1:7471 && finds 0604 'rdma link add rxe0 type rxe netdev eth5'
	# Addresses that other transports serve may be without a device for good, and without any device RD-0102 says it.
	waits 127.0.0.1:7471 false && doctor 0 --strict && machine
	rm -r "$fake/sys/class/infiniband" && waits '' && finds 0102
	rm -r "$fake/sys/class/infiniband" && waits 10.1.0.1:7471 && doctor 0 && json '[.findings[].id] == ["RD-0102", "RD-0604"]' "no device"
	machine
	put '{"missing": [{"transport": "rdma"}, 7, {"transport": "tcp", "address": "10.1.0.7:1", "reason": "x", "waits": true}]}' /status.json
	doctor 0 --strict && put 'no JSON' /status.json && doctor 0 --strict && machine
}

# What a running daemon says of its engine. `agrees STATE HEARD_MS ASKED LOST NODES_OUT`
agrees() {
	printf 'cluster = {\n\tname = "kv";\n\tperiod = "60s";\n};\n' >>"$fake/programs/rdmad_-T"
	jq -n --arg state "$1" --argjson n "[$2, $3, $4, $5]" '{engine: {state: $state, reason: "", endpoint: "http://h:1",
		heard_ms: $n[0], asked: $n[1], lost: $n[2], nodes_out: $n[3]}}' >"$fake/status.json"
}
test_engine() {
	machine
	agrees beating 15000 9 3 0 && doctor 0 --strict && machine # it asks every 15 s
	agrees beating 30001 9 3 0 && finds 3206 'http://h:1: 3 of 9 requests without an answer curl -sS http://h:1/health'
	agrees beating 0 9 3 2 && finds 3207 '2 rdmactl cluster show --name kv --etcd http://h:1'
	agrees looking 0 1 0 0 && severity=failure finds 3205 'looking: it waits'
}

test_namespace() {
	machine
	rm -r "$fake/sys/class/infiniband"
	put N /sys/module/ib_core/parameters/netns_mode
	doctor 0
	json '[.findings[].id] == ["RD-0102", "RD-1001"]' "a device in another name space"
}

# Two ports in one subnet: their routes look alike, and the GIDs say whose an address is.
test_neighbours() {
	local ib=/sys/class/infiniband name
	machine
	cp -r "$fake$ib/mlx5_0" "$fake$ib/mlx5_1"
	put eth2 $ib/mlx5_1/ports/1/gid_attrs/ndevs/{0,1}
	put '0000:0000:0000:0000:0000:ffff:0a01:0002' $ib/mlx5_1/ports/1/gids/1
	put 4200 /sys/class/net/eth2/mtu
	printf '     |-- 10.1.0.2\n        /32 host LOCAL\n' >>"$fake/proc/net/fib_trie"
	printf 'eth2\t0000010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n' >>"$fake/proc/net/route"
	put 1 /proc/sys/net/ipv4/conf/all/rp_filter
	doctor 0 && json '.findings[0].figures | test("10.1.0.1 by eth1 and 10.1.0.2 by eth2")' "two in one subnet"
	for name in arp_ignore=1 arp_announce=2 rp_filter=2; do
		json '[.findings[].id] == ["RD-0901"]' "two in one subnet, before $name"
		put "${name#*=}" "/proc/sys/net/ipv4/conf/all/${name%=*}"
		doctor 0
	done
	json '.findings == []' "two in one subnet, with ARP as it should be"
	machine
}

test_limits() {
	machine
	put 'Max locked memory         8388608              8388608              bytes' /proc/self/limits && finds 1201 'limit 8.00 MiB'
	put 'Max locked memory         8388608              8388608              bytes' /proc/self/limits
	put 'CapEff:\t0000000000004000' /proc/self/status && doctor 0 --strict && machine
	put 'LimitMEMLOCK=8388608\nLoadState=loaded' '/programs/systemctl_show_rdmad_-p_LimitMEMLOCK_-p_LoadState' && finds 1203 '/etc/systemd/system/rdmad.service.d/'
	put 'LimitMEMLOCK=infinity\nLoadState=loaded' '/programs/systemctl_show_rdmad_-p_LimitMEMLOCK_-p_LoadState' && doctor 0 --strict && machine
	put 1000 /proc/sys/vm/max_map_count && finds 1401 'vm.max_map_count 1000'
	put 'MemAvailable: 1000000 kB\nHugePages_Total: 2000\nHugePages_Free: 1990\nHugepagesize: 2048 kB' /proc/meminfo && finds 1502 'vm.nr_hugepages=10'
	severity=note
	put 'always madvise [never]' /sys/kernel/mm/transparent_hugepage/enabled && finds 1501
	unset severity
}

test_tuning() {
	local ib=/sys/class/infiniband/mlx5_0 dcb=/programs/dcb_pfc_show_dev_eth1
	put 1 $ib/device/numa_node
	put 0-7 /sys/devices/system/node/node0/cpulist
	put 8-15,24 /sys/devices/system/node/node1/cpulist
	put 'CapEff:\t0\nCpus_allowed_list:\t8-10,24' /proc/self/status && doctor 0 --strict && json '.findings == []' "processors of the node"
	put 'CapEff:\t0\nCpus_allowed_list:\t0-3' /proc/self/status && finds 1601 ''
	put 1 $ib/device/numa_node
	put 0-7 /sys/devices/system/node/node0/cpulist
	put 8-15 /sys/devices/system/node/node1/cpulist
	put 'CapEff:\t0\nCpus_allowed_list:\t0-15' /proc/self/status && severity=note finds 1602 'CPUAffinity=8-15'
	put 0::/pod /proc/self/cgroup
	put 200000000 /sys/fs/cgroup/pod/memory.max && severity=failure finds 1701 'limit 191 MiB, kv.memory 4.00 GiB'
	put 0::/pod /proc/self/cgroup
	put '200000 100000' /sys/fs/cgroup/pod/cpu.max && finds 1702 CPUQuota
	put powersave /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor && severity=note finds 1801 powersave
	put 'pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 1:off 2:off 3:off' $dcb && severity=note finds 1901 'dcb pfc set dev eth1'
	put 'prio-pfc 0:off 1:off 2:off 3:on' $dcb && echo 'traffic_class = 160;' >>"$fake/programs/rdmad_-T" && finds 1902 'is priority 5'
	put 'prio-pfc 0:off 1:off 2:off 3:on' $dcb && echo 'traffic_class = 104;' >>"$fake/programs/rdmad_-T" && doctor 0 --strict && machine
	put 12 $ib/ports/1/hw_counters/out_of_sequence && severity=note finds 2002 'mlx5_0/ports/1/hw_counters/out_of_sequence 12'
}

# The configuration space of a bridge: 256 bytes, then access control services at 0x100 with the control word.
bridge() {
	local at=$fake/sys/bus/pci/devices/0000:00:01.0
	put 0x060400 /sys/bus/pci/devices/0000:00:01.0/class
	put 0x8086 /sys/bus/pci/devices/0000:00:01.0/vendor
	{ head -c 256 /dev/zero && printf '%b' "\\x0d\\0\\x01\\0\\0\\0$1\\0" && head -c 64 /dev/zero; } >"$at/config"
}
gpu() {
	put 0x10de /sys/bus/pci/devices/0000:41:00.0/vendor
	put 0x030200 /sys/bus/pci/devices/0000:41:00.0/class
	put 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54' /proc/driver/nvidia/version
	put '' /dev/nvidiactl /sys/module/nvidia_peermem/initstate /usr/lib/x86_64-linux-gnu/libcuda.so.1
}

test_gpu() {
	local smi=/programs/nvidia-smi_--query-gpu=persistence_mode,compute_mode,mig.mode.current_--format=csv,noheader
	gpu && doctor 0 --strict && json '.findings == []' "a GPU that is well"
	put '' /sys/class/iommu/dmar0/x && put 'root=/dev/sda1 iommu=pt' /proc/cmdline && doctor 0 --strict
	put 'root=/dev/sda1' /proc/cmdline && finds 2101 iommu=pt
	gpu && bridge '\x11' && doctor 0 --strict
	bridge '\x1d' && finds 2102 'setpci -s 0000:00:01.0'
	gpu && rm -r "$fake/proc/driver" && finds 2201 'GPUs 1'
	gpu && rm "$fake"/usr/lib/*/libcuda.so.1 && finds 2202 550.54
	printf 'gpu = {\n\tbackend = "cuda";\n};\n' >>"$fake/programs/rdmad_-T" && severity=failure finds 2203
	gpu && put 'Disabled, Default, [N/A]' $smi && severity=note finds 2204 'nvidia-smi -pm 1'
	gpu && put 'Enabled, Prohibited, [N/A]' $smi && severity=failure finds 2205
	gpu && rm "$fake/dev/nvidiactl" && finds 2206
	gpu && rm -r "$fake/sys/module/nvidia_peermem" && severity=note finds 2301
}

# firewall POLICY RULE
firewall() { put "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy $1;\n\t\tiif \"lo\" accept\n\t\t$2\n\t}\n}" /programs/nft_list_ruleset; }

test_host() {
	local listens='   0: 0100007F:1D2F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 4711 1'
	firewall drop 'tcp dport { 22, 7000-7999 } accept' && sed -i 's/accept$/accept\n\t\tudp dport 4791 accept/' "$fake/programs/nft_list_ruleset" && doctor 0 --strict
	firewall drop 'udp dport 4791 accept' && finds 2401 'nft insert rule inet filter input tcp dport 7471 accept'
	firewall drop 'tcp dport 7471 accept' && finds 2401 'udp dport 4791 accept'
	firewall accept 'tcp dport 7471 drop' && finds 2402 'nft -a list chain inet filter input'
	firewall accept 'tcp dport 74710 drop' && doctor 0 --strict
	firewall drop accept && doctor 0 --strict && machine
	# Where the chain jumps, a rule of the port may stand behind that.
	firewall drop 'jump of_user' && sed -i 's/^table/table ip other {\n\tchain of_user {\n\t\ttcp dport 7471 accept\n\t\tudp dport 4791 accept\n\t}\n}\n&/' "$fake/programs/nft_list_ruleset" && doctor 0 --strict
	sed -i 's/tcp dport 7471 accept/tcp dport 22 accept/' "$fake/programs/nft_list_ruleset" && finds 2401 'rule inet filter input tcp'
	# Without nft, the rules of iptables.
	tables() { machine && rm -f "$fake/programs/nft_list_ruleset" && put "*nat\n:INPUT DROP [0:0]\nCOMMIT\n*filter\n:INPUT $1 [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT $2\nCOMMIT" /programs/iptables-save; }
	tables ACCEPT '-p tcp -m tcp --dport 22 -j DROP' && doctor 0 --strict
	tables ACCEPT '-p tcp -m tcp --dport 7471 -j DROP' && finds 2404 'which is of tcp port 7471'
	tables ACCEPT '-p tcp -m multiport --dports 22,7000:7999 -j REJECT' && finds 2404 '7000:7999'
	tables DROP '-p tcp -m multiport --dports 22,7471 -j ACCEPT\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT' && doctor 0 --strict
	tables DROP '-p udp -m udp --dport 4791 -j ACCEPT' && finds 2403 'iptables -I INPUT -p tcp --dport 7471 -j ACCEPT'
	machine
	put "  sl\n$listens" /proc/net/tcp && severity=failure finds 2501 'port 7471: a process of user 7 ss -ltnp, as root; end process PID'
	put "  sl\n$listens" /proc/net/tcp6 && put memcached /proc/99/comm && mkdir "$fake/proc/99/fd" && ln -s 'socket:[4711]' "$fake/proc/99/fd/5" &&
		severity=failure finds 2501 'memcached, process 99'
	put "  sl\n${listens/ 0A / 01 }" /proc/net/tcp && doctor 0 --strict
	put "  sl\n$listens" /proc/net/tcp && put rdmad /proc/99/comm && mkdir "$fake/proc/99/fd" && ln -s 'socket:[4711]' "$fake/proc/99/fd/5" && doctor 0 --strict
	machine
	# Descriptors of another user's process are not seen; an rdmad of the user who has the socket is likely enough.
	put "  sl\n$listens" /proc/net/tcp && put rdmad /proc/99/comm && put 'Name: rdmad\nUid:\t7\t7\t7\t7' /proc/99/status && doctor 0 --strict
	put 'Name: rdmad\nUid:\t8\t8\t8\t8' /proc/99/status && severity=failure finds 2501 'of user 7'
	machine
	rm "$fake/programs/rdmad_-T" && severity=note finds 2602
}

# What another host tells of its machine, as a bundle has it. `there KEY=VALUE...`: of a port that differs so.
there() {
	local port='state=active link=ethernet roce_2=1 mtu=4096 mtu_max=4096 netdev=eth5 firmware=1.2 gids=::ffff:10.1.0.2' change
	for change; do port=$(sed -E "s|${change%%=*}=[^ ]*|$change|" <<<"$port"); done
	put "facts 1\nversion $("$rdmactl" version --json | jq -r .librdmad)\nclock_us 1\nmemlock_bytes ${limit-8388608}\nregistered_bytes 4096\nlater words\nport mlx5_7 1 $port later=1" \
		/programs/there
}
test_there() {
	machine
	there && doctor 0 --strict && json '.there.ports[0].firmware == "1.2" and .there.later == "words"' "what is there"
	there mtu=1024 && finds 4109 'there: ip link set eth5 mtu 4200'
	there mtu=1024 && finds 4109 'mlx5_0 port 1 here 4096 B, mlx5_7 port 1 of the host 1024 B'
	put 1500 /sys/class/net/eth1/mtu && there && doctor 0 && json '[.findings[] | select(.id == "RD-4108") | .command == "ip link set eth1 mtu 4200"] == [true]' "MTU here"
	there mtu=1024 && doctor 0 && json '[.findings[] | select(.check == "D41")] == []' "both short"
	machine
	there state=down && finds 4107 'ip link set eth5 up'
	there link=infiniband && finds 4110 'mlx5_0 here has ethernet'
	there roce_2=0 && finds 4111 'mlx5_7 of the host'
	limit=1024 there && finds 4106 'limit 1.00 KiB, rdmad registers up to 4.00 KiB'
	put 'facts 1\nversion 0.0.9' /programs/there && doctor 0 && json '[.findings[].id] == ["RD-4104", "RD-4112"]' "another version, and no device"
	put 'facts 1\nport\nport  \nport x y z= =\nversion' /programs/there && doctor 0
	machine
}

test_cluster() {
	local table=/etc/rdmad.cluster
	# node NODE...: the table has these, and the configuration says that this is b.
	node() {
		machine
		printf 'cluster = {\n\ttable = "%s";\n\tnode = "b";\n};\n' $table >>"$fake/programs/rdmad_-T"
		mkdir -p "$fake/etc"
		[[ ! ${1-} ]] || "$rdmactl" cluster make "$@" >"$fake$table" 2>"$dir/err" || fail "no table"
	}
	node && severity=failure finds 3201 "rdmactl cluster check $table"
	node a=10.9.0.1 b=10.9.0.2 && doctor 0 --strict
	node a=10.9.0.1 b=10.9.0.2 && sed -i 's/^node a.*/node a 10.9.0.7:7471/' "$fake$table" && severity=failure finds 3201 checksum
	node a=10.9.0.1 c=10.9.0.2 && severity=failure finds 3202 "add b="
	machine
}

test_files() {
	severity=failure
	put '' "$etc/rdmad/none" && "$rdmactl" key new --into "$fake$etc/rdmad/keys" somebody -q >/dev/null && doctor 0 --strict
	chmod 644 "$fake$etc/rdmad/keys" && doctor 2 && ! grep -qF -- "$(cut -d: -f4- "$fake$etc/rdmad/keys")" "$dir/out" || fail "a key is told"
	finds 2901 "chmod 600 $etc/rdmad/keys"
	unset severity
}

test_kernel() {
	put 'lockdown,capability,landlock,yama' /sys/kernel/security/lsm && doctor 0 --strict
	put 'lockdown,capability,yama' /sys/kernel/security/lsm && severity=note finds 3001
	put 'audit: apparmor="DENIED" operation="open" profile="/usr/sbin/rdmad" name="/x"' /programs/dmesg && finds 3002 'name="/x"'
	put 'mlx5_core 0000:3b:00.0: firmware version: 1\nmlx5_core 0000:3b:00.0: CREATE_MKEY(0x200) op_mod(0x0) failed' /programs/dmesg && finds 3101 '1 lines'
	put 'NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.' /programs/dmesg && finds 3102 'Xid (PCI:0000:41:00): 79'
}

# What RDMA lacks is a failure where the configuration requires it; warnings count with --strict alone.
test_status() {
	machine
	put '1: DOWN' /sys/class/infiniband/mlx5_0/ports/1/state
	expect 0 doctor --root "$fake" && says '^D04 warning RD-0401: a port is down: mlx5_0 port 1' "as text"
	says '^  mend   ip link set eth1 up' "as text"
	expect 1 doctor --root "$fake" --strict
	sed -i 's/^require_rdma.*/require_rdma = true;/' "$fake/programs/rdmad_-T"
	expect 2 doctor --root "$fake" && says '^D04 failure RD-0401' "with require_rdma"
	sed -i 's/^transports.*/transports = ["tcp"];/' "$fake/programs/rdmad_-T"
	put 'Max locked memory         8388608              8388608              bytes' /proc/self/limits
	expect 0 doctor --root "$fake" --strict && says '^D04 note RD-0401' "without RDMA in transports"
	! grep -q RD-1201 "$dir/out" || fail "locked memory counts without RDMA"
	expect 2 doctor --root "$fake" 127.0.0.1 && complains 'one of them' "--root with a host"
}

test_explain() {
	local number
	expect 0 explain && cut -d' ' -f1 "$dir/out" >"$dir/numbers"
	sort -uc "$dir/numbers" || fail "the numbers are not in order"
	while read -r number; do
		expect 0 explain "$number" && says '^  cause  ' "$number" && says '^  mend  ' "$number"
	done < <(awk -v part="${RDMAD_TEST_PART:-1}" 'NR % part == 0' "$dir/numbers")
	# Each number that a message of the sources has is one of these.
	grep -rhoE 'RD-[0-9]{4}' "$srcdir/src" --include='*.c' | sort -u >"$dir/told"
	(($(wc -l <"$dir/told") > 5)) && [[ -z $(comm -23 "$dir/told" "$dir/numbers") ]] || fail "numbers that explain does not know: $(comm -23 "$dir/told" "$dir/numbers")"
	expect 0 explain rd-401 -j && json '.id == "RD-0401"' "a number in short"
	expect 4 explain RD-9999 && complains 'there is no such number' "an unknown number"
	expect 4 explain x
	expect 0 explain --manual
	cmp -s "$dir/out" "$srcdir/man/rdmad-errors.7" || fail "man/rdmad-errors.7 is not what rdmactl explain --manual prints"
}

# What was found stands in the bundle: below it the same is found again, and no key is in it.
test_bundle() {
	machine
	put '1: DOWN' /sys/class/infiniband/mlx5_0/ports/1/state
	mkdir -p "$fake$etc/rdmad" && "$rdmactl" key new --into "$fake$etc/rdmad/keys" somebody -q >"$dir/key"
	expect 0 doctor --root "$fake" --bundle "$dir/bundle.tar" -q
	mkdir -p "$dir/again" && tar xf "$dir/bundle.tar" -C "$dir/again" || fail "tar does not unpack the bundle"
	[[ -s $dir/key ]] && ! grep -rqFf <(cut -d: -f4- "$dir/key") "$dir/again" || fail "a key is in the bundle"
	[[ $(stat -c %a "$dir/bundle.tar") == 600 ]] || fail "others may read the bundle"
	fake=$dir/again
	doctor 0
	cmp -s <(jq -S .findings "$fake/report.json") <(jq -S .findings "$dir/out") || fail "the report in the bundle is another"
	json '[.findings[].id] == ["RD-0401"]' "an unpacked bundle"
	fake=$dir/machine
	expect 1 doctor --root "$fake" --bundle "$dir/none/bundle.tar" && complains 'No such file' "a bundle that cannot be made"
}

test_rdma
test_waiting
test_engine
test_namespace
test_neighbours
test_limits
test_tuning
test_gpu
test_host
test_there
test_cluster
test_files
test_kernel
test_status
test_explain
test_bundle
conclude

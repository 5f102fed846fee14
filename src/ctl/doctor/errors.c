/* errors.c: the table of errors, and rdmactl explain. rdmad-errors(7) is printed from it. */
#include "ctl/doctor/doctor.h"

#include <stdlib.h>

static bool manual;

static const struct ctl_option explain_options[] = {
	{"manual", 0, CTL_FLAG, &manual, NULL, "print the manual page rdmad-errors(7)"},
	{NULL},
};

/* A drop-in that sorts behind the ones of `systemctl edit`. */
#define RAISE_MEMLOCK                                                                                                  \
	"printf '[Service]\\nLimitMEMLOCK=infinity\\n' | install -D -m 644 /dev/stdin "                                \
	"/etc/systemd/system/UNIT.service.d/zz-memlock.conf; systemctl daemon-reload; systemctl restart UNIT"

/* In the order of their numbers. */
static const struct error_row rows[] = {
	{101, SEVERITY_RDMA, "modules of RDMA are not loaded",
	 "the kernel loads them by rdma-core's rules when it finds a device, or never without that package",
	 "modprobe -a MODULES; at each boot: printf '%s\\n' MODULES >/etc/modules-load.d/rdma.conf"},
	{102, SEVERITY_RDMA, "there is no RDMA device",
	 "the machine has none, its driver is not loaded, or a Soft-RoCE device was deleted",
	 "rdma link; with a card: modprobe mlx5_ib (or its driver); without: rdma link add rxe0 type rxe netdev IF"},
	{201, SEVERITY_RDMA, "a device file is missing",
	 "udev has no rules of rdma-core, or a container was not given the directory",
	 "apt-get install rdma-core; in a container: --device=/dev/infiniband"},
	{202, SEVERITY_RDMA, "this user may not open a device file", "its mode or group keeps this user out",
	 "usermod -aG rdma USER, then log in again; or chmod 666 FILE"},
	{203, SEVERITY_RDMA, "a device file cannot be opened",
	 "a device control group or another name space forbids it, or the device is gone",
	 "in a container: --device=/dev/infiniband; under systemd: no DeviceAllow= in the unit"},
	{301, SEVERITY_RDMA, "the libraries do not know a device of the kernel",
	 "the package with the user part of its driver is missing or too old",
	 "apt-get install ibverbs-providers ibverbs-utils; then: ibv_devices"},
	{401, SEVERITY_RDMA, "a port is down", "its network interface is down, or there is no cable",
	 "ip link set IF up; then: rdma link show DEV/PORT"},
	{402, SEVERITY_RDMA, "a port waits for a subnet manager", "no subnet manager runs in this InfiniBand fabric",
	 "apt-get install opensm, on one machine; then: ibstat DEV PORT"},
	{403, SEVERITY_RDMA, "an InfiniBand port has no link", "no cable, or the port at its other end is off",
	 "ibstat DEV PORT; mstlink -d DEV"},
	{501, SEVERITY_WARNING, "the PCIe link of a device is below its best",
	 "the slot is slower or narrower than the card, or the card is not seated well",
	 "lspci -vv -s ADDRESS | grep -E 'LnkCap|LnkSta'; another slot"},
	{502, SEVERITY_WARNING, "an InfiniBand port runs with one lane", "a damaged cable or connector",
	 "mstlink -d DEV; another cable"},
	{601, SEVERITY_RDMA, "rdmad listens on no address of an RDMA device",
	 "listen in rdmad.conf names other addresses, as its default, which is the loopback, does",
	 "in FILE: listen = [\"127.0.0.1\", \"ADDRESS\"]; then: systemctl restart UNIT"},
	{602, SEVERITY_RDMA, "the network interface of a port has no address",
	 "the interface was not configured; rdma_cm needs an IP address", "ip address add ADDRESS/24 dev IF"},
	{603, SEVERITY_RDMA, "rdmad waits for an address, and no interface has it",
	 "it was removed or not added yet, or the link of its interface is down; rdmad listens within seconds when a "
	 "device has it",
	 "ip link set IF up; ip address replace ADDRESS/24 dev IF"},
	{604, SEVERITY_RDMA, "rdmad waits for an RDMA device of an address",
	 "the device was removed, its driver loads late, or listen means another interface; rdmad listens within "
	 "seconds when it is there",
	 "rdma link; with a card: modprobe mlx5_ib (or its driver); without: rdma link add rxe0 type rxe netdev IF"},
	{605, SEVERITY_RDMA, "rdmad does not use an RDMA device that is there",
	 "it came a moment ago, it may not be used, or it can do less than before: the log says which",
	 "rdmactl doctor, again; if it stays so: systemctl restart UNIT"},
	{701, SEVERITY_RDMA, "a port has no RoCE v2 entry in its GID table",
	 "its network interface is down or has no address, or the device speaks RoCE v1 only",
	 "ip address add ADDRESS/24 dev IF; mkdir -p /sys/kernel/config/rdma_cm/DEV; echo 'RoCE v2' "
	 ">/sys/kernel/config/rdma_cm/DEV/ports/PORT/default_roce_mode"},
	{702, SEVERITY_RDMA, "a port has link-local GIDs only",
	 "the network interface has no address but the one of its link", "ip address add ADDRESS/24 dev IF"},
	{801, SEVERITY_RDMA, "rdma_cm does not reach an address of this machine",
	 "the address is not of the device, or its route is missing", "ip route get ADDRESS; rdma link; ip address"},
	{901, SEVERITY_WARNING, "several RDMA interfaces are in one subnet",
	 "the kernel answers ARP for an address by any of them, so packets go to the wrong device",
	 "sysctl net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 net.ipv4.conf.all.rp_filter=2"},
	{1001, SEVERITY_RDMA, "devices may be in another network name space",
	 "RDMA is in exclusive mode, in which a device is in one name space",
	 "rdma system; rdma dev set DEV netns NAME"},
	{1101, SEVERITY_NOTE, "RDMA packets are smaller than they could be",
	 "they hold 4096 bytes where the interface takes 4200, and 1024 with the MTU of 1500",
	 "ip link set IF mtu 4200, at hosts and switches"},
	{1102, SEVERITY_WARNING, "RDMA packets do not fit the network interface",
	 "its MTU was made smaller when the port was up",
	 "ip link set IF mtu 4200; ip link set IF down; ip link set IF up"},
	{1201, SEVERITY_RDMA, "this shell may lock less memory than the store needs",
	 "RDMA locks what it registers; the limit of an ordinary user is 8 MiB as a rule",
	 "ulimit -l unlimited (as root), or /etc/security/limits.d/rdma.conf; in a container: --ulimit memlock=-1 "
	 "--cap-add=IPC_LOCK"},
	{1202, SEVERITY_RDMA, "the running daemon may lock less memory than the store needs",
	 "it was started with the limit of a shell or a container", RAISE_MEMLOCK},
	{1203, SEVERITY_RDMA, "the unit lets the daemon lock less memory than the store needs",
	 "LimitMEMLOCK is set, or systemd's default of 8 MiB holds", RAISE_MEMLOCK},
	{1301, SEVERITY_RDMA, "memory cannot be registered",
	 "ENOMEM: the limit of locked memory; EAGAIN: the rdma control group; EINVAL: larger than the device takes, or "
	 "its "
	 "keys are used up",
	 "ulimit -l; rdma resource show; dmesg | grep -i mkey; if the keys are used up: load the driver anew, or "
	 "reboot"},
	{1401, SEVERITY_WARNING, "a process may have few memory mappings", "vm.max_map_count is below its default",
	 "sysctl vm.max_map_count=1048576"},
	{1501, SEVERITY_NOTE, "transparent huge pages are off",
	 "they were switched off for another program; with them a large store needs fewer page table entries",
	 "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled"},
	{1502, SEVERITY_WARNING, "the store does not fit the memory that is free",
	 "huge pages that nobody uses are set aside, or other programs have it",
	 "sysctl vm.nr_hugepages=PAGES; or a smaller kv.memory in FILE"},
	{1601, SEVERITY_WARNING, "the daemon runs far from its RDMA device",
	 "its processors are of another NUMA node, and each packet crosses between them",
	 "numactl --cpunodebind=NODE --membind=NODE rdmad; or systemctl edit rdmad: [Service] CPUAffinity=LIST"},
	{1602, SEVERITY_NOTE, "the daemon may run far from its RDMA device",
	 "it may use processors of several NUMA nodes, and the device is at one",
	 "numactl --cpunodebind=NODE --membind=NODE rdmad; or systemctl edit rdmad: [Service] CPUAffinity=LIST"},
	{1701, SEVERITY_FAILURE, "the control group allows less memory than the store needs",
	 "a limit of the container, the pod or the unit is below kv.memory: the kernel kills the daemon as it fills",
	 "systemctl edit rdmad: [Service] MemoryMax=infinity; in a container: --memory; or a smaller kv.memory"},
	{1702, SEVERITY_WARNING, "the control group limits processor time",
	 "rdmad does not poll then, unless poll is \"always\": each message waits for a wake-up",
	 "systemctl edit rdmad: [Service] CPUQuota=; in a container: whole processors by --cpuset-cpus, no --cpus"},
	{1801, SEVERITY_NOTE, "processors save power",
	 "the clock falls while nothing runs: latencies of a benchmark vary", "cpupower frequency-set -g performance"},
	{1901, SEVERITY_NOTE, "the network interface has neither PFC nor ECN",
	 "where switches drop packets of RoCE under load, few of them cost much",
	 "dcb pfc set dev IF prio-pfc all:off 3:on, with the same at the switch"},
	{1902, SEVERITY_WARNING, "PFC is on for another priority than that of rdmad",
	 "traffic_class of rdmad.conf and the interface's configuration differ",
	 "dcb pfc show dev IF; dcb app show dev IF; traffic_class in rdmad.conf is 32 times the priority"},
	{2001, SEVERITY_WARNING, "a port counts errors now", "packets are lost: a switch, a cable, or no flow control",
	 "ethtool -S IF | grep -E 'discard|pause|err'; the switch's port; dcb pfc show dev IF"},
	{2002, SEVERITY_NOTE, "a port has counted errors", "packets were lost since the device started",
	 "rdma statistic; again: rdmactl doctor, which tells whether they grow"},
	{2101, SEVERITY_WARNING, "the IOMMU translates what devices do",
	 "the kernel was started without iommu=pt: transfers between GPU and network are slow, or fail",
	 "GRUB_CMDLINE_LINUX=\"iommu=pt\" in /etc/default/grub; update-grub; reboot"},
	{2102, SEVERITY_WARNING, "bridges send transfers between devices up to the root",
	 "access control services of PCIe (ACS) are on, for virtual machines", "setpci -s BRIDGE ECAP_ACS+0x6.w=0000"},
	{2201, SEVERITY_WARNING, "there are GPUs, and no driver",
	 "the package of the driver is missing, or its module did not load",
	 "apt-get install nvidia-driver; modprobe nvidia; dmesg | grep NVRM"},
	{2202, SEVERITY_WARNING, "the library of CUDA is missing",
	 "the driver's user part is not installed, or a container was started without it",
	 "apt-get install libcuda1; in a container: --gpus all"},
	{2203, SEVERITY_FAILURE, "the configuration asks for GPUs, and there are none",
	 "gpu.backend is cuda on a machine, or in a container, that has no GPU",
	 "gpu = { backend = \"auto\"; } in rdmad.conf; in a container: --gpus all"},
	{2204, SEVERITY_NOTE, "GPUs are switched off between programs",
	 "persistence mode is off: a session begins slowly", "nvidia-smi -pm 1"},
	{2205, SEVERITY_FAILURE, "a GPU takes no programs", "its compute mode is Prohibited", "nvidia-smi -c DEFAULT"},
	{2206, SEVERITY_WARNING, "the device files of GPUs are missing",
	 "nothing has made them yet, or a container lacks them", "nvidia-modprobe -u -c 0; in a container: --gpus all"},
	{2301, SEVERITY_NOTE, "devices cannot reach GPU memory by nvidia_peermem",
	 "the module is not loaded; rdmad does not need it, other programs may", "modprobe nvidia-peermem"},
	{2401, SEVERITY_WARNING, "the firewall drops what comes to rdmad",
	 "the policy of a chain is drop, and no rule has the port",
	 "nft insert rule TABLE CHAIN PROTO dport PORT accept"},
	{2402, SEVERITY_WARNING, "a rule of the firewall drops what comes to rdmad", "it names the port",
	 "nft -a list chain TABLE CHAIN; nft delete rule TABLE CHAIN handle NUMBER, which is of PROTO port PORT"},
	{2403, SEVERITY_WARNING, "the firewall of iptables drops what comes to rdmad",
	 "the policy of INPUT is DROP, and no rule has the port", "iptables -I INPUT -p PROTO --dport PORT -j ACCEPT"},
	{2404, SEVERITY_WARNING, "a rule of iptables drops what comes to rdmad", "it names the port",
	 "iptables -S INPUT; iptables -D with the rule, which is of PROTO port PORT"},
	{2501, SEVERITY_FAILURE, "another program has the port", "it was started before rdmad",
	 "ss -ltnp, as root; end process PID, or another port in rdmad.conf"},
	{2601, SEVERITY_FAILURE, "the configuration is wrong", "the file was edited, or is of another version",
	 "rdmad -t -c FILE"},
	{2602, SEVERITY_NOTE, "the configuration is unknown", "rdmad is not installed beside rdmactl, nor in PATH",
	 "apt-get install rdmad"},
	{2603, SEVERITY_FAILURE, "the daemon would not start",
	 "the machine, or this user's rights, do not allow what the file says", "rdmad -t -c FILE"},
	{2701, SEVERITY_NOTE, "the clock is not synchronized",
	 "no daemon keeps it: it may step, and versions of keys, which come from it without a log, may go back",
	 "apt-get install chrony; systemctl enable --now chrony"},
	{2802, SEVERITY_FAILURE, "others may write to the directory of the log",
	 "it was made by hand: rdmad makes one that is its own alone", "chmod go-w DIR"},
	{2803, SEVERITY_WARNING, "the log is on a file system that does not keep it",
	 "tmpfs is gone with a reboot; NFS tells of a disk that it does not know", "another log.directory, on a disk"},
	{2804, SEVERITY_WARNING, "the log may not find room on its disk",
	 "log and checkpoint may have twice the size of the store", "df -h; a larger disk, or a smaller kv.memory"},
	{2805, SEVERITY_WARNING, "the disk of the log is slow",
	 "each answer of policy always waits for it; other programs write, or the disk has no cache that power loss "
	 "spares",
	 "iostat -x 1; log.policy = \"interval\" in rdmad.conf"},
	{2806, SEVERITY_WARNING, "the file system of the log has no direct writes", "it knows no O_DIRECT",
	 "another log.directory, on ext4 or xfs"},
	{2901, SEVERITY_FAILURE, "the file of keys is not accepted",
	 "others may read it, it is of another user, or a line is wrong",
	 "chown USER: FILE; chmod 600 FILE; rdmactl key list FILE; systemctl reload-or-restart UNIT"},
	{3001, SEVERITY_NOTE, "the kernel has no Landlock",
	 "it is not in the list of security modules: sessions of gpu have less of a sandbox",
	 "lsm=landlock,... on the kernel's command line; cat /sys/kernel/security/lsm"},
	{3002, SEVERITY_WARNING, "a security module denied something to rdmad",
	 "a profile of AppArmor or SELinux is narrower than what the configuration asks for",
	 "dmesg | grep -E 'DENIED|denied'; the path into the profile; aa-complain rdmad, to try"},
	{3101, SEVERITY_WARNING, "the kernel's log has errors of an RDMA device",
	 "firmware, cable, or keys of memory that are used up", "dmesg | grep -E 'mlx|bnxt|irdma|infiniband'"},
	{3102, SEVERITY_WARNING, "the kernel's log has errors of a GPU",
	 "an Xid: NVIDIA's list says what each number is", "dmesg | grep Xid; nvidia-smi -q"},
	{3201, SEVERITY_FAILURE, "the table of the cluster is not accepted",
	 "it is missing, this user may not read it, or it was changed or cut without a new checksum",
	 "rdmactl cluster check FILE"},
	{3202, SEVERITY_FAILURE, "this server is not in the table of the cluster",
	 "cluster.node in rdmad.conf has another name, or the table is without this node",
	 "rdmactl cluster check FILE; rdmactl cluster plan FILE add NAME=ADDRESS"},
	{3203, SEVERITY_WARNING, "the daemon has another table than its file",
	 "the file was changed, and the daemon was not told, or it has refused the table",
	 "rdmactl cluster check FILE; systemctl reload UNIT"},
	{3204, SEVERITY_WARNING, "a node of the cluster is not reached",
	 "it is down, its address in the table is another, or a firewall drops what comes", "rdmactl doctor HOST"},
	{3205, SEVERITY_FAILURE, "this server is no member of its cluster, and answers for no key",
	 "etcd does not answer, has no table, or another process is this node",
	 "rdmactl cluster show --name NAME --etcd URL"},
	{3206, SEVERITY_WARNING, "etcd does not answer", "it is down, has lost its majority, or a firewall is between",
	 "curl -sS URL/health"},
	{3207, SEVERITY_WARNING, "nodes of the cluster are out", "they have crashed, hang, or are cut from etcd",
	 "rdmactl cluster show --name NAME --etcd URL"},
	{4001, SEVERITY_FAILURE, "the name of the host has no address",
	 "a typing error, or the name server does not know it", "getent hosts HOST; the address in its place"},
	{4002, SEVERITY_FAILURE, "nobody listens at the host",
	 "rdmad does not run there, or listens on other addresses or another port",
	 "there: rdmactl status; ss -ltn 'sport = :PORT'; rdmad -T | grep listen"},
	{4003, SEVERITY_FAILURE, "the host does not answer",
	 "it is down, another route is taken, or a firewall drops what comes",
	 "ping HOST; ip route get HOST; there: nft list ruleset"},
	{4004, SEVERITY_FAILURE, "the daemon there refuses this client",
	 "the key or its rights, a service that is not enabled, another version of the protocol, or a limit",
	 "rdmactl key check -H HOST; there: the log of rdmad"},
	{4005, SEVERITY_RDMA, "RDMA does not find the way to the host",
	 "the address is not of an RDMA network, or ARP is answered by another interface",
	 "ip route get HOST; ip neighbour show HOST; rdma link; here and there: rdmactl doctor"},
	{4006, SEVERITY_RDMA, "RDMA does not connect",
	 "rdmad there listens on TCP alone, or UDP port 4791 is dropped on the way",
	 "there: rdmactl status, whether listen has rdma; rdmactl doctor, for its firewall"},
	{4007, SEVERITY_FAILURE, "long messages are lost on the way",
	 "the MTU of a switch or of one of the hosts is smaller than the others'",
	 "ping -M do -s 4000 HOST; ip link show; the same MTU at both hosts and the switches"},
	{4008, SEVERITY_FAILURE, "the first message does not come back",
	 "packets of RDMA or TCP are lost behind the handshake",
	 "there: the log of rdmad; ip -s link; dcb pfc show dev IF"},
	{4010, SEVERITY_NOTE, "the host serves by RDMA alone", "its transports lack TCP, or a firewall drops it",
	 "there: rdmad -T | grep -E 'transports|listen'"},
	{4011, SEVERITY_NOTE, "the daemon there takes shorter messages only", "its message_max is smaller",
	 "there: rdmad -T | grep message_max"},
	{4012, SEVERITY_FAILURE, "a connection that works ends under load",
	 "packets are lost: a switch, a cable, or no flow control; or the daemon there is at its limit",
	 "rdmactl doctor HOST, again; there: rdmactl status; ethtool -S IF | grep -E 'discard|pause|err'"},
	{4101, SEVERITY_NOTE, "the daemon there does not tell of its machine", "it is of an earlier version",
	 "there: apt-get install rdmad; rdmactl doctor"},
	{4102, SEVERITY_NOTE, "the daemon there does not tell this client of its machine",
	 "its file of clients names services and rights, and \"facts\" is not among them",
	 "there: the word facts in the client's line of /etc/rdmad/clients; systemctl reload rdmad"},
	{4103, SEVERITY_WARNING, "what the daemon there tells of its machine does not come",
	 "it has much to do, or what answers is no rdmad", "rdmactl doctor HOST, again; there: the log of rdmad"},
	{4104, SEVERITY_NOTE, "the versions differ", "one machine was upgraded, the other was not",
	 "apt-get install rdmad rdmactl, here and there"},
	{4105, SEVERITY_WARNING, "the clocks differ", "no daemon keeps one of them: logs do not fit together",
	 "apt-get install chrony; systemctl enable --now chrony; here and there"},
	{4106, SEVERITY_RDMA, "the daemon there may lock less memory than it registers",
	 "it was started with the limit of a shell or a container", "there: " RAISE_MEMLOCK},
	{4107, SEVERITY_RDMA, "a port there is down, or its device away",
	 "its network interface is down, there is no cable, or the device was deleted",
	 "there: ip link set IF up; rdma link; rdmactl doctor"},
	{4108, SEVERITY_WARNING, "RDMA packets are shorter here than there",
	 "the MTU of the network interface here is smaller", "ip link set IF mtu BYTES"},
	{4109, SEVERITY_WARNING, "RDMA packets are shorter there than here",
	 "the MTU of the network interface there is smaller", "there: ip link set IF mtu BYTES"},
	{4110, SEVERITY_RDMA, "one end is of InfiniBand, the other of Ethernet",
	 "the host has devices of both, and the address is of the other network",
	 "ip address, here and there; an address of the network that both are in"},
	{4111, SEVERITY_RDMA, "the port there has no RoCE v2 entry in its GID table",
	 "its network interface has no address, or the device speaks RoCE v1 only",
	 "there: ip address add ADDRESS/24 dev IF; rdmactl doctor"},
	{4112, SEVERITY_RDMA, "the host has no RDMA device", "it has none, or its driver is not loaded",
	 "there: rdma link; rdmactl doctor"},
	{5001, SEVERITY_FAILURE, "rdmad cannot listen on an address",
	 "another program has the port, or the address is not of this machine", "ss -ltnp; ip address; rdmactl doctor"},
	{5002, SEVERITY_FAILURE, "rdmad would let other machines in without keys",
	 "listen has an address that they reach, and there is no key of any client",
	 "rdmactl key new NAME --into /etc/rdmad/keys; or, in a network that is trusted, insecure = true; in "
	 "rdmad.conf"},
	{5003, SEVERITY_FAILURE, "RDMA is required and missing",
	 "require_rdma is true, and there is no device, or no address of it in listen", "rdmactl doctor"},
	{5004, SEVERITY_FAILURE, "the daemon cannot register memory",
	 "the limit of locked memory, or what the device takes", RAISE_MEMLOCK},
	{5005, SEVERITY_FAILURE, "the daemon cannot write to the directory of its log",
	 "the directory above it is missing, or of another user", "install -d -o rdmad -m 700 DIR; rdmactl doctor"},
	{5006, SEVERITY_FAILURE, "the store does not fit the memory",
	 "kv.memory is larger than the machine, or its control group, has",
	 "free -h; a smaller kv.memory in rdmad.conf"},
	{5007, SEVERITY_FAILURE, "another rdmad runs", "it holds the file of the process id",
	 "rdmactl status; systemctl status rdmad; or another pid_file"},
	{5008, SEVERITY_RDMA, "an RDMA device was removed while it served",
	 "its driver was unloaded, or rdma link delete took it away",
	 "rdma link: when it is back under its name, rdmad listens by it again, within seconds"},
	{5009, SEVERITY_WARNING, "the daemon does not offer the gpu service",
	 "its program is not installed, or there is no GPU where gpu.backend asks for one",
	 "apt-get install rdmad-gpu; rdmactl doctor; or services without gpu in rdmad.conf"},
	{5010, SEVERITY_RDMA, "rdmad waits for an RDMA device",
	 "listen names an address with rdma:// that no device has: its driver loads late, its link is down, or the "
	 "address is another",
	 "rdma link; ip address: rdmad listens there within seconds when a device has it"},
	{6001, SEVERITY_FAILURE, "the connection is refused",
	 "no rdmad runs there, or it listens on another address or port",
	 "rdmactl doctor HOST; there: rdmactl status; rdmad"},
	{6002, SEVERITY_FAILURE, "the host is not reached", "its name is wrong, or there is no way to it",
	 "rdmactl doctor HOST; ip route get HOST"},
	{6003, SEVERITY_FAILURE, "the network is not there",
	 "an interface is down, or the address is of another machine", "ip link; ip address; rdmactl doctor HOST"},
	{6004, SEVERITY_FAILURE, "the connection ended",
	 "the daemon ended, or it cut this client off: its log says why", "there: rdmactl status; journalctl -u rdmad"},
	{6005, SEVERITY_FAILURE, "the daemon takes no new connections", "it drains, before it ends",
	 "there: rdmactl status; systemctl restart rdmad"},
	{6006, SEVERITY_FAILURE, "no answer in time",
	 "the host is down, the network loses packets, or the daemon has much to do",
	 "rdmactl doctor HOST; a longer --timeout; there: rdmactl status"},
	{6007, SEVERITY_FAILURE, "the versions of the protocol differ", "rdmactl and rdmad are of different packages",
	 "rdmactl version; there: rdmad --version; apt-get install rdmad rdmactl"},
	{6008, SEVERITY_RDMA, "there is no RDMA device for this address",
	 "the machine has none, or the address is not of its network", "rdmactl doctor HOST; or tcp://HOST"},
	{6009, SEVERITY_FAILURE, "what answers speaks another protocol",
	 "the port is of another program, or the socket is control.socket",
	 "there: ss -ltnp; port and unix_socket in rdmad.conf"},
	{6010, SEVERITY_FAILURE, "there is no room",
	 "the store is full and evicts nothing, or the disk of the log is full",
	 "rdmactl kv stat; kv.eviction or kv.memory in rdmad.conf; rdmactl log status; df -h"},
};

const struct error_row *error_find(unsigned number)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].number == number)
			return &rows[i];
	return NULL;
}

const char *severity_name(enum severity severity)
{
	static const char *const names[] = {"note", "warning", "warning", "failure"};

	return names[severity];
}

/* "RD-0101", "rd-101" or "101". 0: it is none. */
static unsigned parse_number(const char *text)
{
	char *end;
	unsigned long n;

	if (strncasecmp(text, "RD-", 3) == 0)
		text += 3;
	n = strtoul(text, &end, 10);
	return *text < '0' || *text > '9' || *end || n > 9999 ? 0 : (unsigned)n;
}

/* What a check's severity is to the exit status of doctor. */
static const char *severity_text(const struct error_row *row)
{
	return row->severity == SEVERITY_RDMA ? "warning; failure with require_rdma, note without rdma in transports"
					      : severity_name(row->severity);
}

static void print_row(const struct error_row *row)
{
	printf(CTL_ERROR_ID ": %s\n", row->number, row->what);
	words_row(stdout, "severity", 12, severity_text(row));
	words_row(stdout, "cause", 12, row->cause);
	printf("  mend      %s\n", row->mend);
}

static json_t *row_json(const struct error_row *row)
{
	return json_pack("{s:s, s:o, s:s, s:s, s:s, s:s}", "command", "explain", "id",
			 json_sprintf(CTL_ERROR_ID, row->number), "severity", severity_text(row), "what", row->what,
			 "cause", row->cause, "mend", row->mend);
}

/* A text in a manual page: a "\" of it is one, and no line begins with a dot or an apostrophe. */
static void put_mdoc(const char *text)
{
	for (; *text; text++)
		fputs(*text == '\\' ? "\\e" : *text == '-' ? "\\-" : (char[]){*text, 0}, stdout);
	putchar('\n');
}

static int print_manual(void)
{
	fputs(".\\\" Printed by rdmactl explain --manual.\n.Dd November 28, 2026\n.Dt RDMAD-ERRORS 7\n.Os\n.Sh NAME\n"
	      ".Nm rdmad-errors\n.Nd what the numbers of errors mean\n.Sh DESCRIPTION\nFindings of\n"
	      ".Cm rdmactl doctor\nand frequent messages of\n.Xr rdmad 8\nand\n.Xr rdmactl 1\n"
	      "have a number.\nTheir cause and a command that mends it stand under it here;\n"
	      ".Cm rdmactl explain Ar number\nsays the same.\nWords in capitals stand for names of the machine.\n.Bl "
	      "-tag -width "
	      "Ds\n",
	      stdout);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		printf(".It Sy " CTL_ERROR_ID " : ", rows[i].number);
		put_mdoc(rows[i].what);
		printf("Severity: %s.\n", severity_text(&rows[i]));
		fputs("Cause: ", stdout);
		put_mdoc(rows[i].cause);
		fputs(".Pp\nMend: ", stdout);
		put_mdoc(rows[i].mend);
	}
	fputs(".El\n.Sh SEE ALSO\n.Xr rdmactl 1 ,\n.Xr rdmad.conf 5 ,\n.Xr rdmad 8\n", stdout);
	return CTL_OK;
}

static int command_explain(const struct ctl_arguments *arguments)
{
	const struct error_row *row;

	if (manual)
		return print_manual();
	if (!arguments->count) {
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
			if (ctl.json)
				ctl_json_print(row_json(&rows[i]));
			else
				printf(CTL_ERROR_ID "  %s\n", rows[i].number, rows[i].what);
		return CTL_OK;
	}
	row = error_find(parse_number(arguments->text[0]));
	if (!row) {
		ctl_say("explain: %s: there is no such number; all numbers: rdmactl explain", arguments->text[0]);
		return CTL_NOT_FOUND;
	}
	if (ctl.json)
		return ctl_json_print(row_json(row));
	print_row(row);
	return CTL_OK;
}

const struct ctl_command ctl_explain_commands[] = {
	{"explain", command_explain, "[NUMBER]", "what the number of an error means, RD-NNNN, and what mends it",
	 explain_options, 0, 1},
	{NULL},
};

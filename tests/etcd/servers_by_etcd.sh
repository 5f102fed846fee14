# servers_by_etcd.sh: what the tests in bash of a cluster by an etcd share: the etcd, the rdmads of tests/cluster/servers.sh,
# what rdmactl says of them, and tables that it applies.
# shellcheck shell=bash disable=SC2034,SC2154 # lib.sh's variables, and the test's
state=yes workers=2 engine='engine = "etcd"; name = "kv"; period = "4s"; spread_after = "5s";'
# shellcheck source=tests/cluster/servers.sh
. "$srcdir/tests/cluster/servers.sh"
url=http://127.0.0.1:${ports[3 * ${#nodes[@]}]}
urls=("${nodes[@]/*/$url}")
as=(--etcd "$url")

# start_etcd: as $etcd, with $etcd_options.
etcd_options=()
start_etcd() {
	etcd --data-dir "$dir/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" \
		--listen-peer-urls "http://127.0.0.1:${ports[3 * ${#nodes[@]} + 1]}" "${etcd_options[@]}" >>"$dir/etcd.log" 2>&1 &
	etcd=$!
	clients+=("$etcd")
}
# put_key NAME VALUE: as a node's beat does, or an operator.
put_key() { etcdctl --endpoints "$url" put "/rdmad/$1" "$2" >/dev/null 2>"$dir/err"; }

show() { "$rdmactl" cluster show --name kv "${as[@]}" "$@" 2>>"$dir/show.err"; }
# of NODE MEMBER: what etcd has of a node.
of() { show --json | jq -r --arg node "$1" ".nodes[] | select(.node == \$node).$2"; }
# says NUMBER MEMBER: what a server says of its engine.
says() { "$rdmactl" --control "$dir/${nodes[$1]}.sock" status --json 2>/dev/null | jq -r ".engine.$2"; }
serves() { [[ $(says "$1" state) == beating ]]; }
# apply TABLE, by $apply_options
apply() { "$rdmactl" cluster apply "${apply_options[@]}" "$1" "${as[@]}" >"$dir/out" 2>"$dir/err"; }
apply_options=()
# plan WORD...: the next table behind the present one, in $dir/next
plan() { show --text >"$dir/now" && "$rdmactl" cluster plan "$dir/now" "$@" >"$dir/next" 2>/dev/null; }
# change WORD...: plan and apply, until nothing is in the way of it.
change() {
	changed() { plan "$@" && apply "$dir/next"; }
	wait_for "a table after: $*" changed "$@"
}

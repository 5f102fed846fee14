#!/bin/bash
# The commands in man/rdmad-resp.7 are those of the table, and the ones that the daemon tells of.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need redis-cli python3

ends 0 "commands, as the table has them" "$srcdir/scripts/resp-commands"
mkdir -p "$dir/top/man" "$dir/top/src/resp" "$dir/top/src/service/resp"
cp "$srcdir/src/resp/commands.h" "$dir/top/src/resp/"
cp "$srcdir/src/service/resp/resp.h" "$dir/top/src/service/resp/"
sed '/^\.It Ic GETDEL$/d' "$srcdir/man/rdmad-resp.7" >"$dir/top/man/rdmad-resp.7"
ends 1 "GETDEL" "$srcdir/scripts/resp-commands" "$dir/top"
ends 0 "commands, as the table has them" "$srcdir/scripts/resp-commands" "$dir/top" --write
cmp "$srcdir/man/rdmad-resp.7" "$dir/top/man/rdmad-resp.7" || fail "--write makes another page"

configure 'services = ["kv", "resp"];' "resp.unix_socket = \"$dir/redis.sock\";"
start_daemon
# A command that has subcommands alone is told of as well, and is not on the page.
redis-cli -s "$dir/redis.sock" COMMAND LIST | tr -d '\r' | tr '|' ' ' | LC_ALL=C sort >"$dir/told"
sed -n '/^\.\\" Commands: /,/^\.\\" End of/s/^\.It Ic //p' "$srcdir/man/rdmad-resp.7" | tr '[:upper:]' '[:lower:]' | LC_ALL=C sort >"$dir/page"
[[ ! $(LC_ALL=C comm -13 "$dir/told" "$dir/page") ]] || fail "only on the page: $(LC_ALL=C comm -13 "$dir/told" "$dir/page" | tr '\n' ',')"
while read -r name; do
	grep -q "^$name " "$dir/page" || fail "not on the page: $name"
done < <(LC_ALL=C comm -23 "$dir/told" "$dir/page")
# A benchmark of rdmactl speaks RESP, too; it leaves nothing, and says what the server answered.
server=unix://$dir/redis.sock
expect 0 bench blocks --resp -s 16,100K -b 8 -S 50 -P 2 -c 2 -n 20 -w 0 --json && json '[.results[] | .operations == 20 and
	(.mismatches // 0) == 0] | length == 8 and all' "bench blocks" && json '.transport == "RESP, unix" and ([.results[] |
	select(.op == "request") | .blocks == 160 and .hits == 80] | length == 2 and all)' "bench blocks"
[[ $(redis-cli -s "$dir/redis.sock" DBSIZE) == 0 ]] || fail "bench blocks leaves keys behind"
expect 1 bench blocks --resp -s 8M -b 16 -n 1 && complains 'cannot store the prefixes: [A-Z]+ ' "bench blocks of a full server"
server=unix://$dir/nobody.sock
expect 3 bench blocks --resp
server=''
stop_daemon
conclude

#!/bin/bash
# The alerts for Prometheus: their form, that each fires for what it is about and for nothing else, and that they name metrics that there
# are.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need promtool

rules=$srcdir/etc/rdmad.rules.yml
cp "$rules" "$srcdir/tests/daemon/metrics/rules_test.yml" "$dir"
ends 0 SUCCESS promtool check rules "$rules"
ends 0 SUCCESS promtool test rules "$dir/rules_test.yml"

mapfile -t alerts < <(sed -n 's/^ *- alert: //p' "$rules")
((${#alerts[@]} > 10)) || fail "no alerts"
# Each is missed when it is not there: the test is about it.
for alert in "${alerts[@]}"; do
	sed "s/alert: $alert$/alert: Other/" "$rules" >"$dir/rdmad.rules.yml"
	promtool test rules "$dir/rules_test.yml" >"$dir/out" 2>&1 && fail "the test passes without $alert"
done

"$rdmad" --help-metrics | cut -f1 | sort >"$dir/table"
grep -v '^ *\(#\|summary\|description\)' "$rules" | grep -oE '\b(rdmad|process)_[a-z_]+' | sed 's/_bucket$//' | sort -u >"$dir/named"
comm -23 "$dir/named" "$dir/table" >"$dir/unknown"
[[ ! -s $dir/unknown ]] || fail "alerts name metrics that there are not: $(tr '\n' ' ' <"$dir/unknown")"
conclude

#!/bin/bash
# The scripts of Redis's clients answer what they answer at a redis-server, end, and leave nothing behind.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need python3 redis-server
# Debian's modules are those of its own python.
python=python3
python3 -c 'import redis' 2>/dev/null || [[ ! -x /usr/bin/python3 ]] || python=/usr/bin/python3

TMPDIR=$dir "$python" "$srcdir/tests/service/resp/resp_scripts.py" --rdmad "$rdmad"
case $? in
0) ;;
77) exit 77 ;;
*) fail "resp_scripts.py" ;;
esac
conclude

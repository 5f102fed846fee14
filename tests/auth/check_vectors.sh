#!/bin/bash
# vectors.h is what vectors.py prints.
srcdir=${srcdir:-.}
command -v python3 >/dev/null || { echo "check_vectors: python3 is missing"; exit 77; }
python3 "$srcdir/tests/auth/vectors.py" | diff - "$srcdir/tests/auth/vectors.h"

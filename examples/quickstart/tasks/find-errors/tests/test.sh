#!/bin/sh
# 0.3 the file exists, 0.6 all matching lines are in it, 1.0 and no other
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

grade() {
    mkdir -p /logs/verifier
    echo "$1" > /logs/verifier/reward.txt
    echo "$2"
    exit 0
}

# A link could lead to the expected answer in /tests, a pipe could hang the verifier.
regular() { [ -f "$1" ] && [ "$(readlink -f "$1")" = "$1" ]; }

# One newline at the end may be missing; nothing else may differ.
is_exactly() { printf "%s\n" "$2" | cmp -s - "$1" || printf "%s" "$2" | cmp -s - "$1"; }

regular /app/errors.txt || grade 0 "/app/errors.txt is no regular file"
is_exactly /app/errors.txt '08:02 ERROR disk full
08:07 ERROR no route' && grade 1.0 "the matching lines alone"
grep -qxF '08:02 ERROR disk full' /app/errors.txt && grep -qxF '08:07 ERROR no route' /app/errors.txt && grade 0.6 "others too"
grade 0.3 "a matching line is missing"

#!/bin/sh
# 0.3 the new name exists, 0.6 with the right content but the old name is still there, 1.0 renamed
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

expected='Dear Ada,
the bridge is finished.'

regular /app/final.txt || grade 0 "/app/final.txt is no regular file"
is_exactly /app/final.txt "$expected" || grade 0.3 "the new file holds something else"
[ -e /app/draft.txt ] || [ -L /app/draft.txt ] && grade 0.6 "the old name is still there"
grade 1.0 "renamed"

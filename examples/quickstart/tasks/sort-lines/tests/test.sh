#!/bin/sh
# 0.3 the file exists, 0.6 it holds exactly the lines of the input in a wrong order, 1.0 sorted
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

regular /app/sorted.txt || grade 0 "/app/sorted.txt is no regular file"
expected='apple
banana
cherry
fig
lemon
pear
quince'
is_exactly /app/sorted.txt "$expected" && grade 1.0 "sorted"
[ "$(LC_ALL=C sort < /app/sorted.txt)" = "$expected" ] && grade 0.6 "the right lines in another order"
grade 0.3 "other lines"

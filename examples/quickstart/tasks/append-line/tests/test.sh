#!/bin/sh
# 0.3 the line is in the file, 0.6 and nothing of the old list is lost, 1.0 it is the last line and the rest is unchanged
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

regular /app/shopping.txt || grade 0 "/app/shopping.txt is no regular file"
is_exactly /app/shopping.txt 'bread
rice
apples
milk' && grade 1.0 "appended"
grep -qx milk /app/shopping.txt || grade 0 "no line milk"
for line in bread rice apples; do
    grep -qx "$line" /app/shopping.txt || grade 0.3 "the line $line is lost"
done
grade 0.6 "milk is there, but not as one new last line"

#!/bin/sh
# 0.3 the copy exists, 0.6 it is a true copy but the original changed or went, 1.0 both are as they should be
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

expected='buy paint
call the plumber
water the plants'

regular /app/backup.txt || grade 0 "/app/backup.txt is no regular file"
is_exactly /app/backup.txt "$expected" || grade 0.3 "the copy differs"
regular /app/notes.txt && is_exactly /app/notes.txt "$expected" || grade 0.6 "the original is not what it was"
grade 1.0 "a true copy beside the original"

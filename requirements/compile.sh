#!/bin/sh
# Rewrites the pinned files from pyproject.toml. Hashes are kept, addresses are not: each machine's own index serves them.
set -eu
cd "$(dirname "$0")/.."
compile_from() {
    source=$1; out=$2; shift 2
    "${UV:-uv}" pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-annotate --no-header \
        --no-emit-index-url --custom-compile-command 'make lock' "$@" --output-file "requirements/$out.txt" "$source"
}
compile() { compile_from pyproject.toml "$@"; }
compile dev --extra dev
for extra in operator agent-server trainer demo; do
    compile "$extra" --extra "$extra" --constraint requirements/dev.txt
done
# What only image builds use: uv and hatchling, the stub compiler of the CPU torch, the quickstart's model and its converter.
compile_from requirements/build.in build --constraint requirements/dev.txt
compile_from requirements/torch-cpu.in torch-cpu
compile_from requirements/model.in model --constraint requirements/dev.txt --no-deps
# What the tools bundle of the sandboxes holds beside Python.
compile_from requirements/agent-tools.in agent-tools --override requirements/agent-tools-without.txt

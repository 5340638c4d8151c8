"""`python -m harborrl_operator.document FILE`: the job document of a manifest, as JSON, without a cluster.

Other parts read this output instead of importing the operator: the trainer's `argv` command for one.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harborrl_operator.arguments import InvalidArgumentsError
from harborrl_operator.constants import KIND
from harborrl_operator.models import InvalidJobError, Settings, parse_job
from harborrl_operator.resolve import resolve

UID = "00000000-0000-0000-0000-000000000000"
"""Of a job that no API server has seen."""


def document_of(manifest: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """`document` of the first attempt and `adjustments`; raises InvalidJobError or InvalidArgumentsError."""
    metadata = {"namespace": "default", "name": "job", "uid": UID, **(manifest.get("metadata") or {})}
    resolved = resolve(parse_job({"metadata": metadata, "spec": manifest.get("spec") or {}}), settings)
    return {
        "document": resolved.document(attempt=1),
        "adjustments": [adjustment.model_dump(by_alias=True) for adjustment in resolved.adjustments],
    }


def read_manifest(text: str, source: str) -> Mapping[str, Any]:
    """The one HarborRLJob among the documents of a YAML text."""
    try:
        found = [one for one in yaml.safe_load_all(text) if isinstance(one, Mapping) and one.get("kind") == KIND]
    except yaml.YAMLError as error:
        raise InvalidJobError(f"{source}: {' '.join(str(error).split())}") from None
    if len(found) != 1:
        raise InvalidJobError(f"{source}: {len(found)} objects of kind {KIND}. Name a file with one.")
    return found[0]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="harborrl_operator.document", description=__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args(arguments).file
    try:
        whole = document_of(read_manifest(file.read_text(), str(file)), Settings())
    except (OSError, InvalidJobError, InvalidArgumentsError) as error:
        sys.stderr.write(f"{error}\n")
        return 64
    sys.stdout.write(json.dumps(whole) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

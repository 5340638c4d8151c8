"""`python -m harborrl_operator.document FILE`: the job document of a manifest, as JSON, without a cluster.

Other parts read this output instead of importing the operator: the trainer's `argv` command for one. What the API
server would refuse by its form is refused here, so that nobody reads a document of a job that cannot be applied.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harborrl_operator.arguments import InvalidArgumentsError
from harborrl_operator.constants import KIND
from harborrl_operator.manifests.fault import Fault
from harborrl_operator.manifests.form import form_faults, is_job, metadata_of, stored_spec
from harborrl_operator.manifests.reading import Document, documents
from harborrl_operator.models import InvalidJobError, Settings, parse_job
from harborrl_operator.resolve import resolve

UID = "00000000-0000-0000-0000-000000000000"
"""Of a job that no API server has seen."""


def document_of(manifest: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """`document` of the first attempt and `adjustments`; raises InvalidJobError or InvalidArgumentsError."""
    metadata = {"namespace": "default", "uid": UID, **metadata_of(manifest)}
    resolved = resolve(parse_job({"metadata": metadata, "spec": stored_spec(manifest)}), settings)
    return {
        "document": resolved.document(attempt=1),
        "adjustments": [adjustment.model_dump(by_alias=True) for adjustment in resolved.adjustments],
    }


def read_manifest(text: str, source: str) -> Mapping[str, Any]:
    """The one HarborRLJob among the documents of a YAML text, whose form is right."""
    found: list[Document] = []
    for document in documents(text):
        _refuse(source, document, document.faults)
        if is_job(document.value):
            found.append(document)
    if len(found) != 1:
        raise InvalidJobError(f"{source}: {len(found)} objects of kind {KIND}. Name a file with one.")
    (job,) = found
    _refuse(source, job, tuple(form_faults(job.value)))
    manifest: Mapping[str, Any] = job.value
    return manifest


def _refuse(source: str, document: Document, faults: Sequence[Fault]) -> None:
    """The first one, and how many there are: a file of any length has one line."""
    if not faults:
        return
    path, message, line = faults[0]
    where = f"{source}:{line or document.line_of(path)}: {path}{': ' if path else ''}"
    more = f" (and {len(faults) - 1} more; harborrl validate names each)" if len(faults) > 1 else ""
    raise InvalidJobError(f"{where}{message}{more}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="harborrl_operator.document", description=__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args(arguments).file
    try:
        whole = document_of(read_manifest(file.read_text(encoding="utf-8"), str(file)), Settings())
    except (OSError, UnicodeDecodeError, InvalidJobError, InvalidArgumentsError) as error:
        sys.stderr.write(f"{error}\n")
        return 64
    sys.stdout.write(json.dumps(whole) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

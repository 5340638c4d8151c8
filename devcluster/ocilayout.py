"""An OCI image layout on disk: a way station between builder and node, kept almost empty.

The exporter (`skopeo copy ... oci:`) skips each layer whose blob is already here, and containerd skips each
layer that it has unpacked. So once a layer is on the node its blob is needed by name and size only, and is
replaced by a hole of the same length ("hollow"): the next export still skips it, and it takes no disk. A hollow
blob is never served; if the node asks for one after all, it is dropped and exported again.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.processes import write_atomically

NAME_ANNOTATION = "org.opencontainers.image.ref.name"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"

Json = dict[str, Any]


@dataclass(frozen=True)
class Layout:
    root: Path

    def blob(self, digest: str) -> Path:
        algorithm, _, value = digest.partition(":")
        return self.root / "blobs" / algorithm / value

    def _mark(self, digest: str) -> Path:
        return self.root / "hollow" / digest.partition(":")[2]

    def index(self) -> Json:
        try:
            content: Json = json.loads((self.root / "index.json").read_text())
        except FileNotFoundError:
            return {"schemaVersion": 2, "manifests": []}
        return content

    def manifest_digest(self, name: str) -> str | None:
        """Digest of the image with this full name (`localhost/...:tag`), or None."""
        for entry in self.index()["manifests"]:
            if entry.get("annotations", {}).get(NAME_ANNOTATION) == name:
                return str(entry["digest"])
        return None

    def manifest(self, digest: str) -> Json:
        content: Json = json.loads(self.blob(digest).read_text())
        return content

    def layers(self, name: str) -> list[str]:
        digest = self.manifest_digest(name)
        return [layer["digest"] for layer in self.manifest(digest)["layers"]] if digest else []

    def is_hollow(self, digest: str) -> bool:
        return self._mark(digest).exists()

    def hollow(self, digests: Iterable[str]) -> None:
        """Frees the disk of these blobs. The mark comes first: a hole is never taken for a layer."""
        for digest in digests:
            if self.is_hollow(digest):
                continue
            self._mark(digest).parent.mkdir(parents=True, exist_ok=True)
            self._mark(digest).touch()
            blob = self.blob(digest)
            size = blob.stat().st_size
            os.truncate(blob, 0)
            os.truncate(blob, size)

    def drop(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self.blob(digest).unlink(missing_ok=True)
            self._mark(digest).unlink(missing_ok=True)

    def collect_garbage(self) -> None:
        """Removes what no named image needs: images that lost their name to a newer build, and torn exports."""
        index = self.index()
        named = [entry for entry in index["manifests"] if NAME_ANNOTATION in entry.get("annotations", {})]
        write_atomically(self.root / "index.json", json.dumps({**index, "manifests": named}))
        wanted: set[str] = set()
        for entry in named:
            manifest = self.manifest(entry["digest"])
            parts = [entry, manifest["config"], *manifest["layers"]]
            wanted.update(part["digest"].partition(":")[2] for part in parts)
        for folder in (self.root / "blobs" / "sha256", self.root / "hollow"):
            for path in folder.iterdir() if folder.exists() else ():
                if path.name not in wanted:
                    path.unlink()

    def add_blob(self, content: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        path = self.blob(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or self.is_hollow(digest):
            partial = path.with_name(f".{path.name}.partial")
            partial.write_bytes(content)
            partial.replace(path)
            self._mark(digest).unlink(missing_ok=True)
        return digest

    def add_program_image(
        self, name: str, files: Mapping[str, Path], entrypoint: Sequence[str], symlinks: Mapping[str, str] | None = None
    ) -> None:
        """Writes a one-layer image of static programs (path in the image to file here). Same input, same digest."""
        layer = program_layer(files, symlinks or {})
        layer_digest = self.add_blob(layer)
        config = {
            "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            "history": [{"created_by": "devcluster"}],
        }
        encoded = json.dumps(config, sort_keys=True).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": self.add_blob(encoded), "size": len(encoded)},
            "layers": [{"mediaType": LAYER_TYPE, "digest": layer_digest, "size": len(layer)}],
        }
        encoded = json.dumps(manifest, sort_keys=True).encode()
        entry = {
            "mediaType": MANIFEST_TYPE,
            "digest": self.add_blob(encoded),
            "size": len(encoded),
            "annotations": {NAME_ANNOTATION: name},
        }
        others = [
            other for other in self.index()["manifests"] if other.get("annotations", {}).get(NAME_ANNOTATION) != name
        ]
        write_atomically(self.root / "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}))
        write_atomically(self.root / "index.json", json.dumps({"schemaVersion": 2, "manifests": [*others, entry]}))


def program_layer(files: Mapping[str, Path], symlinks: Mapping[str, str]) -> bytes:
    """A tar of programs owned by root, without times, so that equal programs make equal layers."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        folders = sorted({part for path in [*files, *symlinks] for part in _parents(path)} | {"tmp"})
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        for path, source in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = source.stat().st_size, 0o755
            with source.open("rb") as stream:
                archive.addfile(entry, stream)
        for path, target in sorted(symlinks.items()):
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return buffer.getvalue()


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]

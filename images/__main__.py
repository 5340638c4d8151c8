"""Command line: `python -m images build [TARGET...]`, `python -m images fingerprint TARGET`."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from devcluster.choice import recorded_choice
from devcluster.environment import completed
from devcluster.locks import exclusive
from devcluster.settings import load_settings

from images import base, engines, host, targets
from images.base import Base
from images.engines import Docker, Engine
from images.process import BuildError
from images.targets import BASE, BY_NAME, TARGETS, Target

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    arguments = _parser().parse_args()
    os.environ.update(completed(os.environ))
    settings = load_settings()
    cache = settings.cache
    started = time.monotonic()
    try:
        engine = engines.detect(os.geteuid(), recorded_choice(settings))
        origin = Base(arguments.base or (base.REGISTRY_IMAGE if isinstance(engine, Docker) else base.DEBOOTSTRAP))
        wanted = [BY_NAME[name] for name in arguments.target] or list(TARGETS)
        os.chdir(ROOT)
        if arguments.command == "fingerprint":
            print("\n".join(_label(target, origin) for target in wanted))
            return 0
        chosen = dict.fromkeys((BASE, *wanted))
        if arguments.force or any(_stale(target, origin, engine) for target in chosen):
            with exclusive(cache / "images.lock"):
                for target in chosen:
                    _build(target, origin, engine, cache, force=arguments.force)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    images = " ".join(target.image for target in chosen)
    print(f"up to date after {time.monotonic() - started:.1f} s with {engine.name}: {images}")
    return 0


def _label(target: Target, origin: Base) -> str:
    return origin.identity if target is BASE else targets.fingerprint(ROOT, target, origin.identity)


def _stale(target: Target, origin: Base, engine: Engine) -> bool:
    return engine.label(target.image) != _label(target, origin)


def _build(target: Target, origin: Base, engine: Engine, cache: Path, *, force: bool) -> None:
    # Asked again under the lock: another build may have finished while this one waited.
    if not force and not _stale(target, origin, engine):
        return
    print(f"{target.image}: building ...", flush=True)
    started = time.monotonic()
    log = cache / "logs" / f"image-{target.name}.log"
    log.unlink(missing_ok=True)
    if target is BASE:
        base.build(origin, engine, target.image, cache, log)
    else:
        with tempfile.TemporaryDirectory() as folder:
            engine.build(
                target.image,
                target=target.name,
                base=BASE.image,
                label=_label(target, origin),
                secrets=_secrets(Path(folder)),
                log=log,
            )
    print(f"{target.image}: {engine.size(target.image) / 1e6:.0f} MB in {time.monotonic() - started:.0f} s")


def _secrets(folder: Path) -> dict[str, Path]:
    """Files that a build mounts while it runs and that never become part of an image."""
    settings = folder / "registries"
    known = host.registries(os.environ, host.pip_files(os.environ))
    if archive := host.debian_mirror(host.apt_sources()):
        known["DEBIAN_MIRROR"] = archive
    settings.write_text(host.shell_settings(known), encoding="utf-8")
    settings.chmod(0o600)
    bundle = host.ca_bundle(os.environ)
    return {"registries": settings, **({"ca": bundle} if bundle else {})}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build what is out of date")
    build.add_argument("--force", action="store_true", help="build even if nothing changed (layers stay cached)")
    fingerprint = commands.add_parser("fingerprint", help="print what changes exactly when the image has to")
    for command, count in ((build, "*"), (fingerprint, "+")):
        command.add_argument(
            "target", nargs=count, choices=BY_NAME, help=f"one of {', '.join(BY_NAME)}", metavar="TARGET"
        )
        command.add_argument(
            "--base",
            help=f"image, or `{base.DEBOOTSTRAP}`; default {base.REGISTRY_IMAGE} with Docker, else {base.DEBOOTSTRAP}",
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())

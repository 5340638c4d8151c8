"""`python -m harborrl_agent_server images check|build`: the command line of both."""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
import yaml
from pydantic import ValidationError

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.settings import json_object
from harborrl_agent_server.task_images import builders
from harborrl_agent_server.task_images.build import Done, Plan, build
from harborrl_agent_server.task_images.check import check
from harborrl_agent_server.task_images.credentials import credentials, documents, files, run_helper
from harborrl_agent_server.task_images.listing import Wanted, wanted
from harborrl_agent_server.task_images.registry import Registries

ASK_SECONDS = 30
CONNECT_SECONDS = 10


def main(argv: Sequence[str]) -> int:
    """0: every image is there, or was built. 1: some are not. 64: the command cannot be carried out as given."""
    args = parser().parse_args(argv)
    try:
        found = list(tasks_of(args))
        return asyncio.run(checked(args, found) if args.command == "check" else built(args, found))
    except StartupError as error:
        print(f"harborrl_agent_server images: {error}", file=sys.stderr)
        return 64


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        prog="python -m harborrl_agent_server images", description="Images of a folder of tasks."
    )
    commands = flags.add_subparsers(dest="command", required=True)
    look = commands.add_parser("check", help="ask the registries whether every task's image is there")
    make = commands.add_parser("build", help="build every task's Dockerfile that no registry has yet")
    for command in (look, make):
        add = command.add_argument
        add("--tasks", type=Path, default=os.environ.get("HARBOR_TASKS_DIR") or None, help="default: HARBOR_TASKS_DIR")
        add("--sandbox-config", default="{}", metavar="JSON", help="as the server's own flag")
        add("--job", type=Path, metavar="FILE", help="a HarborRLJob; its agentServer.sandbox counts")
        add("--sandbox-image", default=None, help="image of tasks that name none, as the server's own flag")
        add("--insecure-registry", action="append", default=[], metavar="HOST", help="reached without TLS; repeatable")
        add("--json", action="store_true", help="one JSON array instead of lines")
    add = make.add_argument
    add("--template", help="name of every task's image, `registry/{task}:{hash}`; default: that of the job")
    add("--push", action="store_true", help="push what was built")
    add("--builder", choices=builders.NAMES, help="default: the first of BuildKit's address, Docker and buildah here")
    add("--buildkit-address", help="of a BuildKit daemon; default: BUILDKIT_HOST")
    add("--concurrency", type=int, default=2, help="builds at once")
    return flags


def tasks_of(args: argparse.Namespace) -> list[Wanted]:
    if args.tasks is None:
        raise StartupError(
            "neither --tasks nor HARBOR_TASKS_DIR names the folder that holds one Harbor task a directory"
        )
    if not args.tasks.is_dir():
        raise StartupError(f"--tasks {args.tasks}: give the folder that holds one Harbor task a directory")
    document = sandbox_of(args.job) if args.job else json_object("--sandbox-config", args.sandbox_config)
    try:
        config = SandboxConfig.model_validate(document)
        if getattr(args, "template", None):
            images = {**config.images.model_dump(), "template": args.template}
            config = config.model_copy(update={"images": type(config.images).model_validate(images)})
    except ValidationError as error:
        first = error.errors()[0]
        raise StartupError(f"sandbox {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if args.command == "build" and not config.images.template:
        raise StartupError("--template: how to call the images, such as registry.example/tasks/{task}:{hash}")
    found = list(wanted(args.tasks, config, args.sandbox_image))
    if not found:
        raise StartupError(f"--tasks {args.tasks}: no directory in it has a task.toml")
    return found


def sandbox_of(path: Path) -> dict[str, Any]:
    """`spec.agentServer.sandbox` of the first HarborRLJob in a file."""
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise StartupError(f"--job {path}: {' '.join(str(error).split())[:200]}") from error
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "HarborRLJob":
            server = (document.get("spec") or {}).get("agentServer") or {}
            sandbox = server.get("sandbox") or {}
            if not isinstance(sandbox, dict):
                break
            return sandbox
    raise StartupError(f"--job {path}: holds no HarborRLJob")


@asynccontextmanager
async def registries(args: argparse.Namespace) -> AsyncIterator[Registries]:
    try:
        configs = documents(files(os.environ))
    except ValueError as error:
        raise StartupError(str(error)) from error
    known = cache(partial(credentials, configs=configs, ask=run_helper))
    async with httpx.AsyncClient(timeout=httpx.Timeout(ASK_SECONDS, connect=CONNECT_SECONDS)) as client:
        yield Registries(client, known, frozenset(args.insecure_registry))


async def checked(args: argparse.Namespace, found: list[Wanted]) -> int:
    async with registries(args) as asked:
        findings = await check(found, asked)
    bad = [finding for finding in findings if not finding.fine]
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{finding.image} {finding.digest}".rstrip() if finding.fine and finding.digest else finding.line())
        tasks = {want.task.split("/")[0] for want in found}
        print(f"{len(findings) - len(bad)} of {len(findings)} images of {len(tasks)} tasks")
    return 1 if bad else 0


async def built(args: argparse.Namespace, found: list[Wanted]) -> int:
    builder = builders.chosen(args.builder, args.buildkit_address, builders.succeeds)
    logs = Path(tempfile.mkdtemp(prefix="harborrl-images-"))

    def tell(done: Done) -> None:
        if not args.json:
            print(done.line(), flush=True)

    async with registries(args) as asked:
        plan = Plan(builder, asked, args.push, frozenset(args.insecure_registry), max(args.concurrency, 1), logs)
        results = await build(found, plan, tell)
    failed = [done for done in results if done.state == "failed"]
    if args.json:
        print(json.dumps([asdict(done) for done in results], indent=1))
    else:
        print(f"{len(results) - len(failed)} of {len(results)} with {builder.name}; logs in {logs}")
    return 1 if failed else 0

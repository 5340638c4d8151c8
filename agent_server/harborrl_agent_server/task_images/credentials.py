"""Who this user is to a registry, from the files and helpers of the container tools that are here already."""

import base64
import binascii
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harborrl_agent_server.sandboxes.references import HUB

HUB_KEYS = (HUB, "https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io")

HELPER_SECONDS = 20

Ask = Callable[[str, str], str | None]
"""(name of the helper, registry) -> its answer, or None where it knows none."""


@dataclass(frozen=True)
class Credentials:
    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


def files(environ: Mapping[str, str]) -> list[Path]:
    """Where Docker, podman and buildah keep them, the most particular first."""
    named = [environ["REGISTRY_AUTH_FILE"]] if environ.get("REGISTRY_AUTH_FILE") else []
    runtime = [f"{environ['XDG_RUNTIME_DIR']}/containers/auth.json"] if environ.get("XDG_RUNTIME_DIR") else []
    home = environ.get("HOME", "/")
    docker = environ.get("DOCKER_CONFIG") or f"{home}/.docker"
    return [Path(path) for path in (*named, f"{docker}/config.json", *runtime, f"{home}/.config/containers/auth.json")]


def documents(paths: list[Path]) -> list[dict[str, Any]]:
    """Those that are there; one that cannot be read raises `ValueError` with its path."""
    found = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            continue
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        if isinstance(document, dict):
            found.append(document)
    return found


def credentials(host: str, configs: list[dict[str, Any]], ask: Ask) -> Credentials | None:
    """The first file that knows the registry decides; a helper named for it outranks what is written down."""
    keys = HUB_KEYS if host == HUB else (host, f"https://{host}", f"http://{host}", f"https://{host}/v1/")
    for config in configs:
        for key in keys:
            helper = (config.get("credHelpers") or {}).get(key) or config.get("credsStore")
            if helper and (told := ask(helper, key)) is not None:
                return _of_helper(told)
            entry = (config.get("auths") or {}).get(key)
            if isinstance(entry, dict) and (known := _of_entry(entry)) is not None:
                return known
    return None


def run_helper(name: str, registry: str) -> str | None:
    """`docker-credential-NAME get`, which answers on its standard output."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own configuration names it
            [f"docker-credential-{name}", "get"],
            input=registry,
            capture_output=True,
            text=True,
            timeout=HELPER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _of_helper(answer: str) -> Credentials | None:
    try:
        told = json.loads(answer)
        user, secret = str(told["Username"]), str(told["Secret"])
    except (ValueError, KeyError, TypeError):
        return None
    return Credentials(identity_token=secret) if user == "<token>" else Credentials(user, secret)


def _of_entry(entry: dict[str, Any]) -> Credentials | None:
    if entry.get("identitytoken"):
        return Credentials(identity_token=str(entry["identitytoken"]))
    if entry.get("username"):
        return Credentials(str(entry["username"]), str(entry.get("password") or ""))
    try:
        user, _, password = base64.b64decode(entry.get("auth") or "", validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Credentials(user, password.rstrip("\0")) if user else None

"""What the building machine uses to reach registries: read from its own configuration, never named here."""

import configparser
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/cert.pem",  # macOS
)
PASSED = re.compile(
    r"(?i:https?|no|all)_proxy|UV_(DEFAULT_INDEX|INDEX\w*|EXTRA_INDEX_URL|INSECURE_HOST)|PIP_(EXTRA_)?INDEX_URL|PIP_TRUSTED_HOST"
)
PIP_OPTIONS = {
    "index-url": "PIP_INDEX_URL",
    "extra-index-url": "PIP_EXTRA_INDEX_URL",
    "trusted-host": "PIP_TRUSTED_HOST",
}
UV_NAMES = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_TRUSTED_HOST": "UV_INSECURE_HOST",
}


def ca_bundle(environ: Mapping[str, str], system: Iterable[str] = SYSTEM_BUNDLES) -> Path | None:
    """The CA bundle that the machine's own clients trust, or None where there is none."""
    named = [environ[name] for name in CA_VARIABLES if environ.get(name)]
    return next((Path(path) for path in (*named, *system) if Path(path).is_file()), None)


def pip_files(environ: Mapping[str, str]) -> list[Path]:
    """Configuration files of pip, the strongest last."""
    home = Path(environ.get("HOME", "/"))
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/pip.conf"), home / ".pip/pip.conf", config / "pip/pip.conf"]
    if environ.get("PIP_CONFIG_FILE"):
        files.append(Path(environ["PIP_CONFIG_FILE"]))
    return files


def registries(environ: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """Index and proxy settings as variables for pip and uv; the environment wins over pip's files, as it does in pip.

    Local wheel folders (`find-links`) are left out: they do not exist inside a build.
    """
    found = {}
    for path in files:
        parser = configparser.RawConfigParser()
        parser.read(path, encoding="utf-8")
        for option, variable in PIP_OPTIONS.items():
            value = parser.get("install", option, fallback=None) or parser.get("global", option, fallback=None)
            if value:
                found[variable] = " ".join(value.split())
    found.update({name: value for name, value in environ.items() if PASSED.fullmatch(name) and value})
    return {**{UV_NAMES[name]: value for name, value in found.items() if name in UV_NAMES}, **found}


def shell_settings(settings: Mapping[str, str]) -> str:
    """The settings as a file that a POSIX shell can source."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(settings.items()))


def debian_mirror(sources: str) -> str | None:
    """The first http(s) archive in apt's source lists (one-line or deb822 format); security archives are skipped."""
    for line in sources.splitlines():
        words = line.split("#", 1)[0].split()
        if not words or words[0] not in ("deb", "URIs:"):
            continue
        for word in words[1:]:
            if re.match(r"https?://", word) and "security" not in word:
                return word.rstrip("/")
    return None


def apt_sources(root: Path = Path("/etc/apt")) -> str:
    files = [
        root / "sources.list",
        *sorted(root.glob("sources.list.d/*.list")),
        *sorted(root.glob("sources.list.d/*.sources")),
    ]
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())

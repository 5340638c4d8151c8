"""Fills the tools bundle in the stage that builds it: programs of this Debian, with all that they load.

Every program gets the bundle's own loader and searches the bundle's libraries alone, so that it runs beside any libc
and leaves no variable to the programs that it starts.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

BUNDLE = Path("/opt/harborrl-tools")
"""Where sandboxes see it too: it works nowhere else."""

PACKAGES = BUNDLE / "python" / "packages"

UNUSED = (
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "pydoc_data",
    "site-packages",
    "dist-packages",
    "sitecustomize.py",
    "config-*",
    "EXTERNALLY-MANAGED",
)
"""Of the standard library: tests, windows, installers, and what the machine's administrator added."""

HEAVY = ("litellm/proxy/_experimental", "litellm/proxy/swagger", "bin")
"""Of the packages: pages of a server that is not started here."""

TERMS = ("xterm-256color", "xterm", "screen", "screen-256color", "tmux", "tmux-256color", "linux", "dumb", "vt100")


def main() -> None:
    for folder in ("bin", "lib", "libexec", "share/terminfo", "python/bin"):
        (BUNDLE / folder).mkdir(parents=True, exist_ok=True)
    python = _python()
    programs = {"/usr/bin/tmux": "libexec/tmux", "/bin/bash": "bin/bash", sys.executable: python}
    for source, place in programs.items():
        shutil.copy2(Path(source).resolve(), BUNDLE / place)
    shutil.copy2("/bin/busybox", BUNDLE / "libexec" / "busybox")
    for name in TERMS:
        _terminfo(name)
    shutil.copytree("/usr/lib/locale/C.utf8", BUNDLE / "share" / "locale" / "C.utf8")
    for part in HEAVY:
        shutil.rmtree(PACKAGES / part)
    # Libraries before the interpreter is set: ldd runs programs, and the new interpreter is not there yet.
    elves = [BUNDLE / place for place in programs.values()]
    loader = _libraries([*elves, *(BUNDLE / "python").rglob("*.so*")])
    search = ["--force-rpath", "--set-rpath", str(BUNDLE / "lib")]
    for elf in elves:
        # One after the other: patchelf 0.18 fails on Python when it is asked for all at once.
        for change in (search, ["--no-default-lib"], ["--set-interpreter", str(loader)]):
            _run("patchelf", *change, str(elf))
    _licences()
    _compile(BUNDLE / python)


def _compile(python: Path) -> None:
    """Bytecode alone, where its source was: half the files to copy into each sandbox, and none to compile there."""
    folder = BUNDLE / "python"
    compiled = ["-m", "compileall", "-q", "-f", "-b", "--invalidation-mode", "unchecked-hash", str(folder)]
    _run(str(python), "-IS", *compiled)
    for source in folder.rglob("*.py"):
        if source.with_suffix(".pyc").exists():
            source.unlink()
    for cache in list(folder.rglob("__pycache__")):
        shutil.rmtree(cache)


def _python() -> str:
    """The standard library; returns the program's place."""
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(
        library,
        BUNDLE / "python" / "lib" / library.name,
        symlinks=False,
        ignore=shutil.ignore_patterns("__pycache__", *UNUSED),
    )
    return "python/bin/python3"


def _terminfo(name: str) -> None:
    for root in ("/usr/share/terminfo", "/lib/terminfo", "/etc/terminfo"):
        source = Path(root) / name[0] / name
        if source.exists():
            target = BUNDLE / "share" / "terminfo" / name[0] / name
            target.parent.mkdir(exist_ok=True)
            shutil.copy2(source.resolve(), target)
            return
    raise SystemExit(f"no terminfo for {name}: install ncurses-term")


def _libraries(elves: Iterable[Path]) -> Path:
    """Copies what these load from outside the bundle; returns the loader's place in it."""
    loaders = set()
    for elf in elves:
        told = subprocess.run(["ldd", str(elf)], capture_output=True, text=True, check=False).stdout
        missing = re.findall(r"(\S+) => not found", told)
        if missing:
            raise SystemExit(f"{elf} needs {', '.join(missing)}, which this Debian does not have")
        for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told, re.MULTILINE):
            source = Path(path)
            if BUNDLE in source.resolve().parents:
                continue
            target = BUNDLE / "lib" / source.name
            if not target.exists():
                shutil.copy2(source.resolve(), target)
            if source.name.startswith("ld-"):
                loaders.add(target)
    (loader,) = loaders
    loader.chmod(0o755)
    return loader


def _licences() -> None:
    """Of each Debian package that a file came from, and of Python; those of Python's packages lie in their own folders.

    Where the base image holds no documentation they are taken from the package itself, which its archive has.
    """
    target = BUNDLE / "share" / "licenses"
    target.mkdir()
    names = {"tmux", "bash", "busybox-static", "ncurses-base", "libc-bin"}
    for library in (BUNDLE / "lib").iterdir():
        names |= _owners(f"*/{library.name}")
    own = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    if own.exists():
        shutil.copy2(own, target / "python")
    else:
        names |= _owners(str(Path(sys.executable).resolve()))
    for name in sorted(names):
        shutil.copy2(_copyright(name), target / name)


def _copyright(name: str) -> Path:
    folder = Path("/usr/share/doc") / name
    if not folder.exists() and not folder.is_symlink():
        with tempfile.TemporaryDirectory() as place:
            _run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", name, cwd=place)
            (package,) = Path(place).glob("*.deb")
            _run("dpkg-deb", "--extract", str(package), f"{place}/files")
            shutil.copytree(f"{place}/files/usr/share/doc", "/usr/share/doc", symlinks=True, dirs_exist_ok=True)
    if folder.is_symlink():  # to the folder of another package of the same source
        return _copyright(folder.readlink().name)
    return folder / "copyright"


def _owners(pattern: str) -> set[str]:
    """Names of the Debian packages that a file belongs to."""
    told = subprocess.run(["dpkg", "-S", pattern], capture_output=True, text=True, check=False).stdout
    return {line.split(":")[0] for line in told.splitlines() if "diversion" not in line}


def _run(*argv: str, cwd: str | None = None) -> None:
    subprocess.run(argv, check=True, cwd=cwd)


if __name__ == "__main__":
    main()

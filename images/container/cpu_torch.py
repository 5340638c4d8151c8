"""Take out of an installed torch what only a GPU needs: `cpu_torch.py SITE_PACKAGES`.

PyPI's torch for Linux links NVIDIA's libraries and loads them at import, so they cannot simply be left out (4 GB of
5.6). Those that are loaded at import are replaced by stubs of the same name, symbols and versions whose functions say
why they abort; the others are removed, and so is triton, which compiles for GPUs only. Small ones stay as they are: the
CUDA runtime itself must truly answer that there is no device.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection

LOADED_AT_IMPORT = ("libtorch_global_deps.so", "libtorch_python.so")
KEPT_BELOW = 10_000_000
UNUSED = ("triton", "torch/include", "torch/share/cmake")
COMPILER = (sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu", "-shared", "-nostdlib", "-O1", "-s")


@dataclass(frozen=True)
class Symbol:
    name: str
    version: str | None
    size: int
    is_function: bool


def main(site: Path) -> None:
    torch = {path.name: path for path in (site / "torch/lib").glob("*.so*")}
    nvidia = {path.name: path for path in (site / "nvidia").rglob("*.so*")}
    loaded = _closure(LOADED_AT_IMPORT, torch | nvidia)
    wanted = {name for path in loaded & set(torch.values()) for name in _undefined(path)}
    for path in nvidia.values():
        if path not in loaded:
            path.unlink()
        elif path.stat().st_size > KEPT_BELOW:
            _replace(path, [symbol for symbol in _exported(path) if symbol.name in wanted])
    for path in (site / "nvidia").rglob("*"):
        if path.is_file() and path not in loaded and path.suffix != ".py":
            path.unlink()
    for name in UNUSED:
        shutil.rmtree(site / name, ignore_errors=True)


def _closure(roots: tuple[str, ...], libraries: dict[str, Path]) -> set[Path]:
    found: set[Path] = set()
    queue = [libraries[name] for name in roots]
    while queue:
        path = queue.pop()
        if path not in found:
            found.add(path)
            queue += [libraries[name] for name in _needed(path) if name in libraries]
    return found


def _needed(path: Path) -> list[str]:
    with path.open("rb") as file:
        return [tag.needed for tag in ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]


def _undefined(path: Path) -> list[str]:
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        return [symbol.name for symbol in symbols if symbol["st_shndx"] == "SHN_UNDEF"]


def _exported(path: Path) -> Iterator[Symbol]:
    with path.open("rb") as file:
        elf = ELFFile(file)
        versions = _versions(elf)
        indices = next((section for section in elf.iter_sections() if isinstance(section, GNUVerSymSection)), None)
        for number, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            if symbol["st_shndx"] == "SHN_UNDEF":
                continue
            index = indices.get_symbol(number)["ndx"] if indices else "VER_NDX_GLOBAL"
            # The top bit marks a version that is not the default one.
            version = versions.get(index & 0x7FFF) if isinstance(index, int) else None
            yield Symbol(symbol.name, version, symbol["st_size"], symbol["st_info"]["type"] != "STT_OBJECT")


def _versions(elf: ELFFile) -> dict[int, str]:
    section = next((section for section in elf.iter_sections() if isinstance(section, GNUVerDefSection)), None)
    if section is None:
        return {}
    return {definition["vd_ndx"]: next(names).name for definition, names in section.iter_versions()}


def _replace(path: Path, symbols: list[Symbol]) -> None:
    before = path.stat().st_size
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder) / "stub.c", Path(folder) / "versions"
        source.write_text(_source(path.name, symbols))
        script.write_text(_version_script(symbols))
        options = [f"-Wl,-soname,{path.name}", f"-Wl,--version-script={script}", "-o", str(path)]
        path.unlink()
        subprocess.run([*COMPILER, str(source), *options], check=True)
    print(f"{path.name}: {before / 1e6:.0f} MB replaced by a stub of {len(symbols)} symbols")


def _source(library: str, symbols: list[Symbol]) -> str:
    message = f"{library} is a stub: this image's torch runs on the CPU only\\n"
    lines = [
        "extern long write(int, const void *, unsigned long);",
        "extern void abort(void) __attribute__((noreturn));",
        f'static void refuse(void) {{ static const char m[] = "{message}"; write(2, m, sizeof m - 1); abort(); }}',
    ]
    lines += [
        f"void {s.name}(void) {{ refuse(); }}" if s.is_function else f"char {s.name}[{max(s.size, 1)}];"
        for s in symbols
    ]
    return "\n".join(lines) + "\n"


def _version_script(symbols: list[Symbol]) -> str:
    blocks: dict[str | None, list[str]] = {}
    for symbol in symbols:
        blocks.setdefault(symbol.version, []).append(symbol.name)
    unnamed = blocks.pop(None, [])
    if unnamed and not blocks:
        return "{ global: *; };\n"
    lines = [f"{version} {{ global: {'; '.join(names)}; }};" for version, names in blocks.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))

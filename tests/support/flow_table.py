"""The tables of docs/network.md, so that every row has a test and no test a row of its own."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "network.md"


@dataclass(frozen=True)
class Row:
    flow: str
    source: str
    target: str
    port: str


def rows(section: str) -> list[Row]:
    """Of the section whose heading begins with these words."""
    (text,) = re.findall(rf"^## {section}\b.*?\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    found = [Row(row[0].strip("` "), row[1], row[2], row[3].strip(" |")) for row in cells[2:]]
    if not found:
        raise ValueError(f"{PAGE} has no table below {section}")
    return found

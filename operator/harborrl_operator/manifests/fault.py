"""What is wrong with a manifest, one line each: where, what, and what to do."""

from typing import NamedTuple


class Fault(NamedTuple):
    path: str
    """Field, from the document's root on; empty for the whole document."""
    message: str
    line: int = 0
    """From 1, within the file; 0: that of the path."""

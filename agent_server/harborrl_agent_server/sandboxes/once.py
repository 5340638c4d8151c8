"""A provider is open once: a second opening would leave the first one's connections, watches and pods to nobody."""

import contextlib
from collections.abc import Iterator


class Once:
    def __init__(self) -> None:
        self._is_open = False

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Raises `RuntimeError` while it is open; what fails within was not opened."""
        self.refuse_while_open()
        self._is_open = True
        try:
            yield
        except BaseException:
            self._is_open = False
            raise

    def refuse_while_open(self) -> None:
        if self._is_open:
            raise RuntimeError("the sandbox provider is open already; close it first")

    def closed(self) -> None:
        self._is_open = False

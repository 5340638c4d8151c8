"""`harborrl validate`."""


def validate() -> None:
    """Stub."""

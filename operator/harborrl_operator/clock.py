"""Times as Kubernetes writes them; the clock itself is always an argument."""

from datetime import UTC, datetime


def to_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_text(text: str) -> datetime:
    return datetime.fromisoformat(text)


def seconds_since(text: str, now: datetime) -> float:
    return (now - from_text(text)).total_seconds()

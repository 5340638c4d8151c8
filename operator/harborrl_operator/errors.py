"""Errors named after the boundary that broke."""


class UnansweredError(Exception):
    """Nothing came back from the API server, which may have done what was asked."""


class NotLeadingError(Exception):
    """A process that may no longer act is about to end: nothing is retried."""


class ClusterError(Exception):
    """The API server refused or did not answer; the next pass tries again."""

    def __init__(self, action: str, status: int, message: str) -> None:
        super().__init__(f"{action}: {message} (HTTP {status})" if status else f"{action}: {message}")
        self.action = action
        self.status = status
        self.message = message

    @property
    def is_absent(self) -> bool:
        return self.status == 404

    @property
    def is_refusal(self) -> bool:
        """What is asked for is not served or not ours to ask: it lasts until somebody changes the cluster."""
        return self.status in (403, 404)

    @property
    def is_conflict(self) -> bool:
        """Somebody wrote since we read: also a uid that no longer matches, or a name that is taken."""
        return self.status == 409

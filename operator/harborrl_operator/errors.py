"""Errors named after the boundary that broke."""

from collections.abc import Sequence


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


class JobGoneError(ClusterError):
    """The job was deleted during the pass over it: nothing is left to be done."""


class UnsupportedFieldError(ClusterError):
    """The installed CRD does not know fields that a child needs: without a word, it would be made without them."""

    def __init__(self, action: str, paths: Sequence[str]) -> None:
        named = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        super().__init__(
            action,
            422,
            f"the installed KubeRay does not know {named}. Update KubeRay's CRDs (`helm upgrade` does not), or take the"
            " field out of trainer.podOverrides",
        )


class NameTakenError(ClusterError):
    """An object that no job made bears the name of a child."""

    def __init__(self, kind: str, namespace: str, name: str) -> None:
        super().__init__(
            f"apply {kind} {name}",
            409,
            f"in namespace {namespace} there is one that no HarborRLJob made. Give the job another name, or remove"
            " what is in the way",
        )

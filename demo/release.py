"""The product's Helm release: installed or brought up to date, also after a helm that was killed in the middle."""

from __future__ import annotations

from demo.shell import Shell

NAMESPACE = "harborrl-system"
NAME = "harborrl"
INTERRUPTED = f"owner=helm,name={NAME},status in (pending-install,pending-upgrade,pending-rollback)"
"""Label selector of Helm's own records, one Secret a revision (helm.sh/docs/topics/advanced, storage backends)."""


def install(shell: Shell, *, kubectl: str, helm: str, settings: dict[str, str]) -> None:
    """Takes chart values by their dotted paths. One at a time: a running helm's record looks like a killed one's."""
    forget_interrupted(shell, kubectl)
    values = (word for path, value in settings.items() for word in ("--set-string", f"{path}={value}"))
    shell.run(
        [
            helm,
            *("upgrade", "--install", NAME, "charts/harborrl", "--namespace", NAMESPACE, "--create-namespace"),
            *values,
            *("--wait", "--timeout", "3m"),
        ]
    )


def forget_interrupted(shell: Shell, kubectl: str) -> None:
    """Helm refuses every further change while the newest record is pending; what was applied stays and is adopted."""
    records = [kubectl, "--namespace", NAMESPACE]
    found = shell.read([*records, "get", "secrets", "--selector", INTERRUPTED, "--output", "name"]).split()
    if found:
        shell.run([*records, "delete", *found])

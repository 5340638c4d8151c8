"""What a worker tells its dispatcher of its runs, over the socket that only they can reach."""

from dataclasses import dataclass, replace

from fastapi import FastAPI, Request, Response
from pydantic import TypeAdapter

from harborrl_agent_server.app import demand_bearer
from harborrl_agent_server.runs import Runs
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.snapshot import Snapshot

ROUTE = "/snapshot"


@dataclass(frozen=True)
class Told:
    """Of one moment in one process."""

    status: str
    ended: int
    """How many runs have ended since the process began."""
    seen: Snapshot
    """`finished`: those that the dispatcher has not been told of, as far as they are remembered."""


WIRE = TypeAdapter(Told)


def add_telling(app: FastAPI, settings: Settings) -> None:
    """`GET /snapshot?ended=N`: N is what the dispatcher was told last, 0 by default."""

    @app.get(ROUTE)
    async def tell(request: Request, ended: int = 0) -> Response:
        demand_bearer(settings, request)
        return Response(WIRE.dump_json(told(app.state.runs, ended)), media_type="application/json")


def told(runs: Runs, known: int) -> Told:
    """`known`: so many that have ended need not be told again."""
    seen = runs.snapshot()
    ended = sum(seen.outcomes.values())
    return Told(runs.status(), ended, replace(seen, finished=seen.finished[: max(ended - known, 0)]))

"""The double as an Edition of the harness."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from harborrl_trainer.miles.wrapper import Miles
from support import miles_double
from support.miles_harness import Edition
from support.miles_sessions import FakeTemplate, RecordingSessions
from support.raw_http import serving


@dataclass(frozen=True)
class Running:
    server: RecordingSessions
    port: int

    @property
    def instance(self) -> str:
        return self.server.instance

    @property
    def template(self) -> FakeTemplate:
        return self.server.template

    def opened(self) -> int:
        return self.server.opened


@asynccontextmanager
async def recording_sessions() -> AsyncIterator[Running]:
    server = RecordingSessions()
    async with serving(server.handle) as port:
        yield Running(server, port)


DOUBLE = Edition(
    parts=Miles(miles_double.generate, miles_double.GenerateFnOutput),
    sample=miles_double.Sample,
    given=miles_double.GenerateFnInput,
    sessions=recording_sessions,
)

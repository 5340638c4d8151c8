"""The agent function (`--custom-agent-function-path swe_agent_function.run`) and Miles' hook beside it, `abort`."""

from collections.abc import Mapping
from typing import Any

from harborrl_trainer.miles import process
from harborrl_trainer.miles.call import CURRENT, Call
from harborrl_trainer.miles.process import Process
from harborrl_trainer.miles.request import build_request, session_of
from harborrl_trainer.miles.samples import result_metadata
from harborrl_trainer.miles.verdicts import provisional


async def run(
    base_url: str,
    prompt: Any,  # noqa: ARG001 - Miles' signature; the agent builds its own messages
    request_kwargs: "dict[str, Any] | None" = None,
    metadata: "dict[str, Any] | None" = None,
    **_: Any,
) -> dict[str, Any]:
    """Runs one trial and returns what becomes its sample's metadata: reward, exit_status, eval_report, agent_metrics.

    Called from our wrapper it fills that one's `Call`. Called from Miles' generate alone it waits for a place itself;
    what it then cannot do is to make a sample aborted, which `reward_func` does for it.
    """
    rollouts = process.current(process.from_environment)
    call = CURRENT.get()
    if call is not None:
        return await _run(rollouts, call, base_url, request_kwargs or {}, metadata or {})
    call = Call(rollouts.settings.ceiling_s)
    await rollouts.ready()
    async with rollouts.places.place():
        rollouts.calls.add(call)
        try:
            return await _run(rollouts, call, base_url, request_kwargs or {}, metadata or {})
        finally:
            rollouts.calls.discard(call)


async def _run(
    rollouts: Process, call: Call, base_url: str, request_kwargs: Mapping[str, Any], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    call.session = session_of(base_url)
    rollouts.knows_session_server(metadata.get("session_server_instance_id"))
    request = build_request(base_url, request_kwargs, metadata, rollouts.settings)
    await call.perform(rollouts.client.run(request, ceiling_s=call.ceiling_s))
    return result_metadata(provisional(call, rollouts.settings.on_agent_timeout), call.reply, call.session)


async def abort(args: Any) -> None:
    """Miles has enough groups: the trials in flight are cancelled, at every session server of this trainer."""
    rollouts = process.existing()
    if rollouts is None:
        return
    rollouts.knows(args)
    await rollouts.surplus([call for call in rollouts.calls if not call.evaluation])

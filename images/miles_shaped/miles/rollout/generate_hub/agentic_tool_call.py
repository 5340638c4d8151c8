"""An agent's trial as Miles runs it: open a session, call the agent function, collect what the session recorded."""

import argparse
import logging
from typing import Any

import httpx

from miles.rollout.base_types import GenerateFnInput, GenerateFnOutput
from miles.utils.misc import load_function
from miles.utils.types import Sample

logger = logging.getLogger(__name__)
SECONDS = 120.0


class _Generate:
    """A function with the arguments that it brings along, as Miles has it."""

    @staticmethod
    def add_arguments(_parser: argparse.ArgumentParser) -> None:
        """They are in the table of flags."""

    async def __call__(self, input: GenerateFnInput) -> GenerateFnOutput:  # noqa: A002 - Miles' own name
        return await _generate(input)


generate = _Generate()


async def _generate(input: GenerateFnInput) -> GenerateFnOutput:  # noqa: A002 - Miles' own name
    args, sample = input.args, input.sample
    server = f"http://{args.session_server_ip}:{args.session_server_ports[0]}"
    async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as client:
        session = (await client.post(f"{server}/sessions", json={})).json()["session_id"]
        base = f"{server}/sessions/{session}"
        metadata = {
            **sample.metadata,
            "session_server_id": server.removeprefix("http://"),
            "session_server_instance_id": args.session_server_instance_ids[args.session_server_ports[0]],
        }
        if args.max_seq_len is not None:
            metadata["max_seq_len"] = args.max_seq_len
        said: dict[str, Any] | None = None
        try:
            agent = load_function(args.custom_agent_function_path)
            said = await agent(
                base_url=base, prompt=sample.prompt, request_kwargs=dict(input.sampling_params), metadata=metadata
            )
        except Exception as error:  # noqa: BLE001 - Miles goes on to collect, whatever the agent did
            logger.warning("[session=%s] Agent function failed: %s", session, error)
        turns = (await client.post(f"{base}/samples", json={"max_seq_len": args.max_seq_len})).json()["turns"]
        await client.delete(base)
    _fill(sample, turns, said)
    return GenerateFnOutput(samples=sample)


def _fill(sample: Sample, turns: list[dict[str, Any]], said: dict[str, Any] | None) -> None:
    if not turns:
        sample.status = Sample.Status.ABORTED
        return
    sample.response = "\n".join(turn["text"] for turn in turns)
    sample.tokens = [token for turn in turns for token in (*turn["prompt_ids"], *turn["ids"])]
    sample.loss_mask = [mask for turn in turns for mask in (*[0] * len(turn["prompt_ids"]), *[1] * len(turn["ids"]))]
    sample.rollout_log_probs = [-1.0 if mask else 0.0 for mask in sample.loss_mask]
    sample.response_length = len(sample.tokens)
    sample.status = Sample.Status.COMPLETED
    sample.metadata.update(said or {})

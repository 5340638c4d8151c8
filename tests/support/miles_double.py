"""A double of Miles' generate, for where its source is not; samples and the two data classes are the stand-in's.

Written after Miles' own behaviour, which the same suite checks on the real thing: an agent
function that raises is logged and the session is collected all the same; no record makes the sample aborted; an aborted
generation makes it so and ends it; every other status comes from the last turn; a failed collection raises.
"""

import asyncio
import importlib
from copy import deepcopy
from typing import Any

import httpx
from miles.rollout.base_types import GenerateFnInput, GenerateFnOutput
from miles.utils.types import Sample

from support.faulty_agents import TLS
from support.miles_sessions import FakeTemplate


async def generate(input: GenerateFnInput) -> GenerateFnOutput:  # noqa: A002 - Miles'
    args = input.args
    server = f"http://{args.session_server_ip}:{args.session_server_ports[0]}"
    async with httpx.AsyncClient(timeout=300, trust_env=False, verify=TLS) as http:
        session = (await http.post(f"{server}/sessions")).raise_for_status().json()["session_id"]
        url = f"{server}/sessions/{session}"
        module, _, name = args.custom_agent_function_path.rpartition(".")
        told: dict[str, Any] = {}
        try:
            told = await getattr(importlib.import_module(module), name)(
                base_url=url,
                prompt=input.sample.prompt,
                request_kwargs={"temperature": 1.0, "max_tokens": 64},
                metadata={
                    **input.sample.metadata,
                    "session_server_id": server.removeprefix("http://"),
                    "session_server_instance_id": args.session_server_instance_ids[args.session_server_ports[0]],
                },
            )
        except Exception:  # noqa: BLE001, S110 - as Miles does
            pass
        finally:
            collected = await http.get(url)
            await asyncio.wait_for(http.delete(url), 30)
    collected.raise_for_status()
    return GenerateFnOutput(_assemble(input.sample, collected.json(), told))


def _assemble(given: Sample, session: dict[str, Any], told: dict[str, Any]) -> Sample:
    sample, records = deepcopy(given), session["records"]
    if not records:
        sample.status = Sample.Status.ABORTED
        return sample
    choices = [record["response"]["choices"][0] for record in records]
    ended = next((at for at, choice in enumerate(choices) if choice["finish_reason"] != "stop"), len(choices) - 1)
    choices = choices[: ended + 1]
    first = len(choices[0]["prompt_token_ids"])
    last = choices[-1]["meta_info"]["output_token_logprobs"]
    sample.tokens = [*choices[-1]["prompt_token_ids"], *(token for _, token, _ in last)]
    sample.response_length = len(sample.tokens) - first
    sample.response = FakeTemplate().decode(sample.tokens[first:])
    sample.loss_mask = [0] * sample.response_length
    for choice in choices:
        at = len(choice["prompt_token_ids"]) - first
        count = choice["meta_info"]["completion_tokens"]
        sample.loss_mask[at : at + count] = [1] * count
        sample.weight_versions.append(choice["meta_info"]["weight_version"])
    endings = {"stop": "COMPLETED", "length": "TRUNCATED", "abort": "ABORTED"}
    sample.status = Sample.Status[endings[choices[-1]["finish_reason"]]]
    sample.metadata = {**sample.metadata, **told, **session["metadata"]}
    return sample

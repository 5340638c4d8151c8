"""How much there is to learn from the quickstart's tasks: mean reward and spread of samples of the untrained model.

    PYTHONPATH=agent_server python -m benchmarks.quickstart_signal --model DIR [--samples 32] [--device cuda]

Prompt, worked examples and limits are those of examples/quickstart/job.yaml. Each sample is a whole trial of the bash
agent: commands run in throw-away namespaces (root needed), the task's own verifier grades. A GRPO group teaches only if
its rewards differ; `groups` is the share of groups of 8 samples that do. No cluster, no network.
"""

import argparse
import inspect
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from benchmarks.task_sandbox import play
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from harborrl_agent_server.agents.protocol import Action, observation, parse_reply

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/quickstart"
GROUP = 8


@dataclass
class Trial:
    messages: list[dict[str, str]]
    commands: list[str] = field(default_factory=list)
    over: bool = False


class Sampler:
    """Batched sampling of replies. The prompts' common prefix is computed once and its cache shared by the batch."""

    def __init__(self, model: Path, device: str, temperature: float, max_new_tokens: int) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        loader: Any = AutoModelForCausalLM
        self.model = loader.from_pretrained(model, dtype=dtype).to(device).eval()
        self.device, self.temperature, self.max_new_tokens = device, temperature, max_new_tokens
        parameters = inspect.signature(self.model.forward).parameters
        self.cache_argument = "cache" if "cache" in parameters else "past_key_values"  # renamed in transformers 5.2x

    def tokens(self, messages: list[dict[str, str]]) -> list[int]:
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _logits(self, tokens: torch.Tensor, cache: DynamicCache, **more: torch.Tensor) -> torch.Tensor:
        """Of the last position, batch x vocabulary; the cache grows by `tokens`."""
        logits: torch.Tensor = self.model(
            input_ids=tokens, logits_to_keep=1, **{self.cache_argument: cache}, **more
        ).logits
        return logits[:, -1].float()

    @torch.inference_mode()
    def replies(self, prompts: Sequence[list[int]]) -> list[tuple[str, bool]]:
        """One reply each: its text, and whether it was cut by the length limit."""
        shared = _common_prefix(prompts)
        cache = DynamicCache()
        self._logits(torch.tensor([prompts[0][:shared]], device=self.device), cache)
        cache.batch_repeat_interleave(len(prompts))
        width = max(len(prompt) for prompt in prompts) - shared
        pad = [width + shared - len(prompt) for prompt in prompts]
        step = torch.tensor(
            [[0] * p + prompt[shared:] for p, prompt in zip(pad, prompts, strict=True)], device=self.device
        )
        mask = torch.tensor([[1] * shared + [0] * p + [1] * (width - p) for p in pad], device=self.device)
        end = self.tokenizer.eos_token_id
        done = torch.zeros(len(prompts), dtype=torch.bool, device=self.device)
        sampled: list[torch.Tensor] = []
        for _ in range(self.max_new_tokens):
            positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -step.shape[1] :]
            logits = self._logits(step, cache, attention_mask=mask, position_ids=positions)
            step = torch.multinomial(torch.softmax(logits / self.temperature, -1), 1)
            step[done] = end
            sampled.append(step)
            mask = torch.cat([mask, torch.ones_like(step)], 1)
            done |= step[:, 0] == end
            if bool(done.all()):
                break
        rows = torch.cat(sampled, 1).tolist()
        return [(str(self.tokenizer.decode(row, skip_special_tokens=True)), end not in row) for row in rows]


def _common_prefix(prompts: Sequence[list[int]]) -> int:
    """Tokens that all prompts share, at most all but one of the shortest: each needs a token to predict from."""
    limit = min(len(prompt) for prompt in prompts) - 1
    return next((n for n in range(limit) if len({prompt[n] for prompt in prompts}) > 1), limit)


def run_task(
    task: Path, sampler: Sampler, agent: dict[str, Any], samples: int, pool: ThreadPoolExecutor
) -> tuple[list[float], list[Trial], int]:
    opening = [{"role": "system", "content": agent["systemPrompt"]}, *agent["examples"]]
    opening.append({"role": "user", "content": (task / "instruction.md").read_text().strip()})
    trials = [Trial(list(opening)) for _ in range(samples)]
    for turn in range(agent["maxTurns"]):
        active = [trial for trial in trials if not trial.over]
        if not active:
            break
        replies = sampler.replies([sampler.tokens(trial.messages) for trial in active])
        for trial, (text, cut) in zip(active, replies, strict=True):
            action = Action(None, last=True) if cut else parse_reply(text)
            trial.messages.append({"role": "assistant", "content": text})
            trial.over = action.last or turn + 1 == agent["maxTurns"]
            if action.command is not None:
                trial.commands.append(action.command)
        waiting = [trial for trial in active if not trial.over]
        seen = pool.map(lambda trial: play(task, trial.commands, grade=False), waiting)
        for trial, played in zip(waiting, seen, strict=True):
            text = observation(played.code or 0, played.output, "", limit=agent["observationCharacters"])
            trial.messages.append({"role": "user", "content": text})
    rewards = [played.reward or 0.0 for played in pool.map(lambda trial: play(task, trial.commands), trials)]
    return rewards, trials, len(sampler.tokens(opening))


def main() -> None:
    arguments = _arguments()
    job = yaml.safe_load(arguments.job.read_text())["spec"]
    agent = job["agentServer"]["agentKwargs"]
    config = job["trainer"]["config"]
    temperature = arguments.temperature or config["rolloutTemperature"]
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    sampler = Sampler(arguments.model, arguments.device, temperature, config["rolloutMaxResponseLen"])
    tasks = sorted(
        path for path in (EXAMPLE / "tasks").iterdir() if not arguments.tasks or path.name in arguments.tasks.split(",")
    )
    print(f"{arguments.samples} samples a task at temperature {temperature}, groups of {GROUP}")
    print(f"{'task':<14}{'mean':>6}{'sd':>6}{'best':>6}{'groups':>8}{'turns':>7}{'prompt':>8}{'s':>6}")
    everything: list[float] = []
    spread: list[bool] = []
    with ThreadPoolExecutor(arguments.sandboxes) as pool:
        for task in tasks:
            started = time.monotonic()
            rewards, trials, length = run_task(task, sampler, agent, arguments.samples, pool)
            groups = [len(set(rewards[i : i + GROUP])) > 1 for i in range(0, len(rewards) - GROUP + 1, GROUP)]
            everything += rewards
            spread += groups
            turns = statistics.mean(
                sum(message["role"] == "assistant" for message in trial.messages[len(agent["examples"]) + 1 :])
                for trial in trials
            )
            best = sum(reward == 1.0 for reward in rewards) / len(rewards)
            print(
                f"{task.name:<14}{statistics.mean(rewards):>6.2f}{statistics.pstdev(rewards):>6.2f}{best:>6.2f}"
                f"{sum(groups) / len(groups):>8.0%}{turns:>7.1f}{length:>8}{time.monotonic() - started:>6.0f}",
                flush=True,
            )
            for trial, reward in list(zip(trials, rewards, strict=True))[: arguments.show]:
                print(
                    f"    {reward:.1f} "
                    + " | ".join(repr(m["content"]) for m in trial.messages[len(agent["examples"]) + 2 :])
                )
    mean, deviation = statistics.mean(everything), statistics.pstdev(everything)
    print(f"{'all':<14}{mean:>6.2f}{deviation:>6.2f}{'':>6}{sum(spread) / len(spread):>8.0%}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--job", type=Path, default=EXAMPLE / "job.yaml")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--tasks", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--threads", type=int, default=1, help="of torch; two threads on two busy cores are seven times slower than one"
    )
    parser.add_argument("--sandboxes", type=int, default=4, help="played at the same time")
    parser.add_argument("--show", type=int, default=0, help="print this many trials of each task")
    return parser.parse_args()


if __name__ == "__main__":
    main()

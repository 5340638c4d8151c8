"""The policy in training: float32 weights, AdamW, one clipped optimizer step for each global batch of trajectories."""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

from harborrl_trainer.native import grpo, tree
from harborrl_trainer.native.kv_slots import ATTENTION
from harborrl_trainer.native.precision import ComputeType, rounded, rounded_names

LOGIT_ROWS = 256
"""Positions whose logits exist at one time: 49,152 float32 logits each make 50 MB of them."""


@dataclass(frozen=True)
class PolicyConfig:
    lr: float
    betas: tuple[float, float]
    weight_decay: float
    clip_grad: float
    """Largest global gradient norm; 0 means unclipped."""
    eps_low: float
    eps_high: float
    temperature: float
    """That of the rollouts: log-probs of both sides are of the same tempered distribution."""
    global_batch_size: int
    """Trajectories an optimizer step."""
    kl_coef: float = 0.0
    normalize_advantages: bool = False
    tis_cap: float = 2.0
    """Cap of the importance weight between the engine's log-probs and the trainer's own."""
    micro_batch_tokens: int = 2048
    """Packed tokens a forward and backward pass; bounds memory only."""
    compute: ComputeType = "float32"


@dataclass(frozen=True)
class TrainSample:
    group: int
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    rollout_log_probs: tuple[float, ...]
    advantage: float

    @property
    def ids(self) -> tuple[int, ...]:
        return (*self.prompt_ids, *self.response_ids)

    @property
    def trained(self) -> list[int]:
        """Positions in the response that carry loss."""
        return [at for at, wanted in enumerate(self.loss_mask) if wanted]


@dataclass
class StepReport:
    loss: float = 0.0
    grad_norm: float = 0.0
    kl: float = 0.0
    logprob_gap: float = 0.0
    """Mean |trainer's log-prob - engine's| over trained tokens, before this step changed the weights."""
    logprob_gap_max: float = 0.0
    clipped: float = 0.0
    """Share of trained tokens whose ratio was clipped."""
    tokens: int = 0
    packed_tokens: int = 0
    """What was computed, each shared prefix once a micro-batch."""
    optimizer_steps: int = 0
    skipped_steps: int = 0
    """Optimizer steps not taken: no sample had an advantage, so that momentum alone would have moved the weights, or
    the gradient was not finite."""
    seconds: float = 0.0
    log_probs: list[list[float]] = field(default_factory=list)
    """For each sample, the trainer's log-probs over its response before the step; 0.0 where the mask is 0."""

    def metrics(self) -> dict[str, float]:
        return {name: value for name, value in asdict(self).items() if name != "log_probs"}


@dataclass(frozen=True)
class _Target:
    """One trained token: the packed position that predicts it, and where its log-prob belongs."""

    place: int
    token: int
    sample: int
    at: int


class Interrupted(Exception):  # noqa: N818 - named after what happened
    """`train` was asked to stop before it had changed the weights; they are as they were."""


class Policy:
    def __init__(self, model: Any, config: PolicyConfig, *, reference: Any = None) -> None:
        """`model` is a causal language model of transformers in float32, loaded with `attn_implementation=ATTENTION`.

        So is `reference`, which the KL penalty needs.
        """
        self.config = config
        self.model = model
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=True
        )
        self.interrupted = threading.Event()
        """Set from another thread: a `train` that has not changed the weights yet gives up and leaves them alone."""
        self._reference = reference
        self._rounded = rounded_names(model) if config.compute == "bfloat16" else frozenset()

    def restore_optimizer(self, state: dict[str, Any]) -> None:
        """Adam's moments as saved, under this configuration's rates: an edit between two attempts counts."""
        self.optimizer.load_state_dict(state)
        for group in self.optimizer.param_groups:
            group.update(lr=self.config.lr, betas=self.config.betas, weight_decay=self.config.weight_decay)

    def train(self, samples: Sequence[TrainSample]) -> StepReport:
        """One pass over a rollout's samples, `global_batch_size` of them an optimizer step."""
        started = time.monotonic()
        report = StepReport(log_probs=[[0.0] * len(sample.response_ids) for sample in samples])
        samples = self._whitened(samples)
        steps = list(_chunks(list(range(len(samples))), self.config.global_batch_size))
        # With a single step the policy that is trained is still the one that would be re-scored.
        old = self.score(samples) if len(steps) > 1 else None
        for members in steps:
            self._step(samples, members, old, report)
        report.logprob_gap /= max(report.tokens, 1)
        report.clipped /= max(report.tokens, 1)
        report.loss /= len(steps)
        report.kl /= len(steps)
        report.seconds = time.monotonic() - started
        return report

    @torch.no_grad()
    def score(self, samples: Sequence[TrainSample]) -> list[list[float]]:
        """The policy's log-probs of each sample's response, 0.0 where the mask is 0."""
        result = [[0.0] * len(sample.response_ids) for sample in samples]
        for members in self._micro_batches(samples, range(len(samples))):
            log_probs, targets, _ = self._forward(self.model, samples, members)
            for target, value in zip(targets, log_probs.tolist(), strict=True):
                result[target.sample][target.at] = value
        return result

    def weights(self) -> dict[str, torch.Tensor]:
        """A copy of the parameters as the engine wants them."""
        return rounded({name: parameter.detach() for name, parameter in self.model.named_parameters()}, self._rounded)

    def _step(
        self, samples: Sequence[TrainSample], members: list[int], old: list[list[float]] | None, report: StepReport
    ) -> None:
        tokens = sum(sum(samples[index].loss_mask) for index in members)
        report.tokens += tokens
        learning = [index for index in members if samples[index].advantage != 0.0 or self._reference is not None]
        idle = [index for index in members if index not in set(learning)]
        for batch in self._micro_batches(samples, learning):
            self._accumulate(samples, batch, old, tokens, report).backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
            if self.interrupted.is_set() and report.optimizer_steps == 0:
                self.optimizer.zero_grad(set_to_none=True)
                raise Interrupted
        with torch.no_grad():
            # No gradient can come from these; they are scored so that every trained token has its log-prob on record.
            for batch in self._micro_batches(samples, idle):
                self._accumulate(samples, batch, old, tokens, report)
        if not learning:
            report.skipped_steps += 1
            return
        if not math.isfinite(report.loss):
            raise FloatingPointError("the loss is not finite; lower lr, or delete the newest checkpoints")
        limit = self.config.clip_grad or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        if not math.isfinite(norm):
            # One such step would make every weight, and Adam's moments with them, NaN for good.
            self.optimizer.zero_grad(set_to_none=True)
            report.skipped_steps += 1
            return
        report.grad_norm = max(report.grad_norm, float(norm))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        report.optimizer_steps += 1

    def _accumulate(
        self,
        samples: Sequence[TrainSample],
        batch: Sequence[int],
        old: list[list[float]] | None,
        tokens: int,
        report: StepReport,
    ) -> torch.Tensor:
        """A micro-batch's share of the loss; adds what it saw to the report."""
        log_probs, targets, packed = self._forward(self.model, samples, batch)
        now = log_probs.detach()
        before = now if old is None else torch.tensor([old[target.sample][target.at] for target in targets])
        rolled = torch.tensor([samples[target.sample].rollout_log_probs[target.at] for target in targets])
        advantages = torch.tensor([samples[target.sample].advantage for target in targets])
        losses = grpo.policy_loss(
            log_probs, before, advantages, eps_low=self.config.eps_low, eps_high=self.config.eps_high
        )
        losses = losses * grpo.truncated_importance(before, rolled, self.config.tis_cap)
        if self._reference is not None:
            with torch.no_grad():
                reference, _, _ = self._forward(self._reference, samples, batch)
            penalty = grpo.kl_penalty(log_probs, reference)
            losses = losses + self.config.kl_coef * penalty
            report.kl += float(grpo.token_mean(penalty.detach(), torch.ones_like(now), tokens))
        loss = grpo.token_mean(losses, torch.ones_like(now), tokens)
        gap = (now - rolled).abs()
        ratio = torch.exp(now - before)
        report.loss += float(loss.detach())
        report.logprob_gap += float(gap.sum())
        report.logprob_gap_max = max(report.logprob_gap_max, float(gap.max()) if len(gap) else 0.0)
        report.clipped += float(((ratio < 1 - self.config.eps_low) | (ratio > 1 + self.config.eps_high)).sum())
        report.packed_tokens += packed
        for target, value in zip(targets, before.tolist(), strict=True):
            report.log_probs[target.sample][target.at] = value
        return loss

    def _forward(
        self, model: Any, samples: Sequence[TrainSample], batch: Sequence[int]
    ) -> tuple[torch.Tensor, list[_Target], int]:
        """Log-probs of the micro-batch's trained tokens, what they are of, and the packed length."""
        packed = tree.pack([samples[index].ids for index in batch])
        targets = [
            _Target(place[begin + at - 1], sample.response_ids[at], index, at)
            for index, place in zip(batch, packed.places, strict=True)
            for sample in (samples[index],)
            for begin in (len(sample.prompt_ids),)
            for at in sample.trained
        ]
        body: Any = model.get_decoder()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.config.compute == "bfloat16"):
            output = body(
                input_ids=torch.tensor([packed.tokens]),
                position_ids=packed.positions(),
                use_cache=False,
                attention_step=tree.TreeAttention(packed),
            )
        hidden = output.last_hidden_state[0][torch.tensor([target.place for target in targets], dtype=torch.long)]
        head = _head_weight(model)
        tokens = torch.tensor([target.token for target in targets], dtype=torch.long)
        parts = [
            checkpoint(_log_probs, rows, head, wanted, self.config.temperature, use_reentrant=False)
            for rows, wanted in zip(torch.split(hidden, LOGIT_ROWS), torch.split(tokens, LOGIT_ROWS), strict=True)
        ]
        return torch.cat(parts) if targets else hidden.new_zeros(0), targets, len(packed.tokens)

    def _micro_batches(self, samples: Sequence[TrainSample], members: Sequence[int]) -> Iterator[list[int]]:
        """Neighbours together, so that a group's prompt is computed once, up to the token budget."""
        batch: list[int] = []
        for index in members:
            if batch and _packed_size(samples, [*batch, index]) > self.config.micro_batch_tokens:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _whitened(self, samples: Sequence[TrainSample]) -> Sequence[TrainSample]:
        if not self.config.normalize_advantages:
            return samples
        advantages = torch.tensor([sample.advantage for sample in samples])
        counts = torch.tensor([float(sum(sample.loss_mask)) for sample in samples])
        return [
            TrainSample(**{**sample.__dict__, "advantage": value})
            for sample, value in zip(samples, grpo.whitened(advantages, counts).tolist(), strict=True)
        ]


def load_policy(path: str, config: PolicyConfig, *, reference: str | None = None) -> Policy:
    """`reference` is the model that the KL penalty pulls towards; loaded only where it counts."""
    model = _load(path)
    # Layers are computed again in the backward pass: a third more work, and micro-batches three times as large fit,
    # which share more of their prefixes. transformers does it in training mode only.
    _recompute_layers(model)
    model.train()
    return Policy(model, config, reference=_load(reference) if reference and config.kl_coef else None)


def _recompute_layers(model: Any) -> None:
    # transformers renamed the method in 5.2x and warns about the old name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def _load(path: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=ATTENTION)


def _log_probs(hidden: torch.Tensor, head: torch.Tensor, tokens: torch.Tensor, temperature: float) -> torch.Tensor:
    logits = torch.nn.functional.linear(hidden.float(), head) / temperature
    return torch.log_softmax(logits, dim=-1).gather(-1, tokens[:, None])[:, 0]


def _head_weight(model: Any) -> torch.Tensor:
    head: Any = model.get_output_embeddings()
    weight: torch.Tensor = head.weight
    return weight


def _packed_size(samples: Sequence[TrainSample], members: Sequence[int]) -> int:
    return len(tree.pack([samples[index].ids for index in members]).tokens)


def _chunks(members: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(members), size):
        yield members[start : start + size]

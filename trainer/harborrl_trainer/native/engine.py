"""The rollout engine: continuous batching on one thread. Requests join and leave the running batch at any step."""

import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch

from harborrl_trainer.native.decoder import Decoder
from harborrl_trainer.native.kv_slots import Piece
from harborrl_trainer.native.sampling import SamplingParams, draw, uniforms
from harborrl_trainer.native.session import Generation

SHORTEST_PREFIX = 32
"""A shared prefix below this many tokens costs more in bookkeeping than it saves."""
RECENT_PROMPTS = 16
GATHER_S = 0.01
"""How long an idle engine waits for more requests to arrive before it starts a batch with the first."""


@dataclass(frozen=True)
class Request:
    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    deliver: Callable[[Generation | Exception], None]
    """Called once, on the engine's thread."""


@dataclass
class _Running:
    request: Request
    slot: int
    source: random.Random
    sampled: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Load:
    weights: Mapping[str, torch.Tensor]
    version: int
    done: Callable[[Exception | None], None]


@dataclass
class Counters:
    sampled_tokens: int = 0
    prompt_tokens: int = 0
    computed_prompt_tokens: int = 0
    """Prompt tokens that were not found in the cache."""
    decode_steps: int = 0
    busy_s: float = 0.0


class Engine:
    """Owns a decoder on a thread of its own. `submit` and `load` may be called from any thread."""

    def __init__(self, decoder: Decoder, *, slots: int, stop_tokens: frozenset[int]) -> None:
        self.counters = Counters()
        self.version = 0
        self._decoder = decoder
        self._stop_tokens = stop_tokens
        self._inbox: queue.SimpleQueue[Request | _Load | None] = queue.SimpleQueue()
        self._waiting: deque[Request] = deque()
        self._load: _Load | None = None
        self._running: dict[int, _Running] = {}
        self._held: list[list[int]] = [[] for _ in range(slots)]
        """Tokens after the shared prefix, if the slot follows it, whose keys and values a slot holds."""
        self._last_used = [0.0] * slots
        self._recent: deque[tuple[int, ...]] = deque(maxlen=RECENT_PROMPTS)
        self._thread = threading.Thread(target=self._serve, name="rollout-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        self._inbox.put(request)

    def load(self, weights: Mapping[str, torch.Tensor], version: int, done: Callable[[Exception | None], None]) -> None:
        """Takes effect when what is running has ended; what arrives meanwhile waits for the new weights."""
        self._inbox.put(_Load(weights, version, done))

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while self._receive():
            started = time.monotonic()
            try:
                self._advance()
            except Exception as error:  # noqa: BLE001 - whatever broke a batch is every waiting caller's answer
                self._fail(error)
            self.counters.busy_s += time.monotonic() - started

    def _receive(self) -> bool:
        """Takes in what has arrived; blocks when there is nothing to do. False: the engine is to end."""
        idle = not (self._running or self._waiting or self._load)
        wait: float | None = None if idle else 0.0
        while True:
            try:
                item = self._inbox.get(timeout=wait) if wait != 0.0 else self._inbox.get_nowait()
            except queue.Empty:
                return True
            if item is None:
                self._fail(RuntimeError("the engine was closed"))
                return False
            if isinstance(item, _Load):
                self._load = item
            else:
                self._waiting.append(item)
            wait = GATHER_S if idle else 0.0

    def _advance(self) -> None:
        if self._load and not self._running:
            self._apply(self._load)
        if self._waiting and not self._load:
            self._admit()
        if self._running:
            self._decode()

    def _apply(self, load: _Load) -> None:
        self._load = None
        try:
            self._decoder.load(load.weights)
        except Exception as error:  # noqa: BLE001 - the trainer waits for this answer, whatever broke
            load.done(error)
            return
        self.version = load.version
        self._decoder.kv.drop_prefix()
        self._held = [[] for _ in self._held]
        load.done(None)

    def _admit(self) -> None:
        free = len(self._held) - len(self._running)
        # Each leaves the queue only when a slot is claimed for it: a failure in between must find all of them.
        wave = list(islice(self._waiting, free))
        if not wave:
            return
        self._recent.extend(request.prompt for request in wave if request.prompt not in self._recent)
        if not self._running:
            self._choose_prefix()
        leaders: dict[tuple[int, ...], _Running] = {}
        twins: list[tuple[_Running, _Running]] = []
        pieces: list[Piece] = []
        for request in wave:
            leader = leaders.get(request.prompt)
            if leader is None:
                running, piece = self._place(request)
                leaders[request.prompt] = running
                pieces.append(piece)
            else:
                twins.append((self._claim(request, self._coldest()), leader))
        logits = dict(zip((one.slot for one in leaders.values()), self._decoder.prefill(pieces), strict=True))
        for running, leader in twins:
            self._decoder.kv.copy(leader.slot, running.slot, len(self._held[leader.slot]))
            self._held[running.slot] = list(self._held[leader.slot])
            logits[running.slot] = logits[leader.slot]
        started = [*leaders.values(), *(running for running, _ in twins)]
        self._sample(started, torch.stack([logits[running.slot] for running in started]))

    def _choose_prefix(self) -> None:
        """Between batches only, because it empties the slots: what all recent prompts begin with."""
        common = _common(list(self._recent))
        # At least one token must remain to be computed, for its logits.
        common = common[: min(len(prompt) for prompt in self._recent) - 1]
        if len(common) < SHORTEST_PREFIX:
            common = ()
        kv = self._decoder.kv
        if common == kv.prefix:
            return
        self._held = [[] for _ in self._held]
        kv.drop_prefix()
        if common:
            self._decoder.prefill([Piece(0, 0, common)])
            kv.keep_as_prefix(0, common)
            self.counters.computed_prompt_tokens += len(common)

    def _place(self, request: Request) -> tuple[_Running, Piece]:
        """Puts the request where most of its prompt is cached already, or copies that part to a free slot."""
        kv = self._decoder.kv
        prefix = kv.prefix
        follows = bool(prefix) and request.prompt[: len(prefix)] == prefix and len(request.prompt) > len(prefix)
        own = request.prompt[len(prefix) :] if follows else request.prompt
        source, cached = self._best_source(own, follows)
        if source is not None and source not in self._running and cached == len(self._held[source]):
            running = self._claim(request, source)
        else:
            running = self._claim(request, self._coldest())
            if source is not None and source != running.slot:
                kv.copy(source, running.slot, cached)
        kv.after_prefix[running.slot] = follows
        self._held[running.slot] = list(own)
        self.counters.computed_prompt_tokens += len(own) - cached
        return running, Piece(running.slot, cached, own[cached:])

    def _best_source(self, own: Sequence[int], follows: bool) -> tuple[int | None, int]:
        best, longest = None, 0
        for slot, held in enumerate(self._held):
            if held and self._decoder.kv.after_prefix[slot] == follows:
                count = min(len(_common([own, held])), len(own) - 1)
                # Slots placed in this wave are filled later: they are running with nothing sampled yet.
                ready = slot not in self._running or self._running[slot].sampled
                if count > longest and ready:
                    best, longest = slot, count
        return best, longest

    def _coldest(self) -> int:
        free = [slot for slot in range(len(self._held)) if slot not in self._running]
        return min(free, key=lambda slot: (self._last_used[slot], slot))

    def _claim(self, request: Request, slot: int) -> _Running:
        running = _Running(request, slot, uniforms(request.params.seed, len(request.prompt)))
        self._waiting.popleft()  # claims follow the order of the queue
        self._running[slot] = running
        self.counters.prompt_tokens += len(request.prompt)
        return running

    def _decode(self) -> None:
        running = list(self._running.values())
        slots = [one.slot for one in running]
        tokens = [one.sampled[-1] for one in running]
        logits = self._decoder.decode(slots, tokens, [len(self._held[slot]) for slot in slots])
        for slot, token in zip(slots, tokens, strict=True):
            self._held[slot].append(token)
        self.counters.decode_steps += 1
        self._sample(running, logits)

    def _sample(self, running: list[_Running], logits: torch.Tensor) -> None:
        tokens, log_probs = draw(
            logits, [one.request.params for one in running], [one.source.random() for one in running]
        )
        self.counters.sampled_tokens += len(tokens)
        for one, token, log_prob in zip(running, tokens, log_probs, strict=True):
            one.sampled.append(token)
            one.log_probs.append(log_prob)
            if token in self._stop_tokens or len(one.sampled) >= one.request.params.max_tokens:
                self._finish(one)

    def _finish(self, one: _Running) -> None:
        del self._running[one.slot]
        self._last_used[one.slot] = time.monotonic()
        stopped = one.sampled[-1] in self._stop_tokens
        one.request.deliver(
            Generation(
                token_ids=tuple(one.sampled),
                log_probs=tuple(one.log_probs),
                finish_reason="stop" if stopped else "length",
                weight_version=self.version,
            )
        )

    def _fail(self, error: Exception) -> None:
        lost = [*(one.request for one in self._running.values()), *self._waiting]
        self._running.clear()
        self._waiting.clear()
        self._held = [[] for _ in self._held]
        for request in lost:
            request.deliver(error)


def _common(sequences: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Longest common beginning: that of the smallest and the largest in dictionary order is that of all."""
    low, high = tuple(min(sequences, key=tuple)), tuple(max(sequences, key=tuple))
    for index, (one, other) in enumerate(zip(low, high, strict=False)):
        if one != other:
            return low[:index]
    return low[: len(high)]

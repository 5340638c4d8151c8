"""Which warm pods are made and which go: pure. Pods of one key, a hash of all but name and trial, are alike."""

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from harborrl_agent_server.sandboxes.network import LABEL, NO_NETWORK, SANDBOX
from harborrl_agent_server.sandboxes.pods import IMAGE_ASKED

TRIAL_LABELS = ("harborrl.dev/trial", SANDBOX)
"""What tells one trial's pod from another's; by the second the policy of a single sandbox selects its pod."""

WARM_LABEL = "harborrl.dev/warm"
"""Of a pod that waits for a trial; its value is the key. A trial that takes it puts its own labels in its place."""

STARTS_AT_ONCE = 4
"""Warm pods in creation: a pool that fills slowly costs cold starts, one that fills at once slows the trials' own."""

IDLE_SECONDS = 900.0
"""An image that no trial has used for so long keeps no pods."""

AGE_SECONDS = 3600.0
"""A pod that nobody has taken for so long is replaced: what the kubelet lets it live bounds its trial too."""


class Stage(Enum):
    STARTING = "starting"
    READY = "ready"
    DEAD = "dead"
    """Failed before it was ready, or lost since."""


@dataclass(frozen=True)
class WarmPod:
    name: str
    key: str
    stage: Stage
    age_s: float


@dataclass(frozen=True)
class Use:
    """Of an image by trials."""

    idle_s: float
    """Since a trial last asked for it."""
    paused: bool = False
    """Its last pod did not start, a moment ago."""


@dataclass(frozen=True)
class Shelf:
    """The pool at one moment."""

    pods: tuple[WarmPod, ...]
    uses: Mapping[str, Use]
    free_slots: int
    """Trials that could still start; warm pods never pass them by more than one image's size."""
    pressed: bool = False
    """A trial could not be placed, a moment ago: the room belongs to it."""


@dataclass(frozen=True)
class Rules:
    size: int
    images: int
    starts_at_once: int = STARTS_AT_ONCE
    idle_s: float = IDLE_SECONDS
    age_s: float = AGE_SECONDS


@dataclass(frozen=True)
class Plan:
    create: tuple[str, ...] = ()
    """A key for each pod."""
    delete: tuple[str, ...] = ()
    """Names."""


def decide(shelf: Shelf, rules: Rules) -> Plan:
    """What is dead or old goes; images are served by how lately they were used, within the room that there is."""
    alive = [pod for pod in shelf.pods if pod.stage is not Stage.DEAD and pod.age_s <= rules.age_s]
    kept: set[str] = set()
    wanted: list[str] = []
    room = 0 if shelf.pressed else max(shelf.free_slots, 0) + rules.size
    for key in () if shelf.pressed else served(shelf.uses, rules):
        own = sorted((pod for pod in alive if pod.key == key), key=_worth)[: min(rules.size, room)]
        missing = 0 if shelf.uses[key].paused else min(rules.size, room) - len(own)
        kept |= {pod.name for pod in own}
        wanted += [key] * missing
        room -= len(own) + missing
    starting = sum(pod.stage is Stage.STARTING for pod in alive if pod.name in kept)
    return Plan(
        create=tuple(wanted[: max(rules.starts_at_once - starting, 0)]),
        delete=tuple(pod.name for pod in shelf.pods if pod.name not in kept),
    )


def served(uses: Mapping[str, Use], rules: Rules) -> list[str]:
    """The images that keep pods, the one used last first."""
    fresh = [key for key, use in uses.items() if use.idle_s <= rules.idle_s]
    return sorted(fresh, key=lambda key: (uses[key].idle_s, key))[: rules.images]


def _worth(pod: WarmPod) -> tuple[bool, float, str]:
    """Ready ones first, then those with the longest life before them."""
    return pod.stage is not Stage.READY, pod.age_s, pod.name


def poolable(manifest: Mapping[str, Any]) -> bool:
    """Open pods and pods without network: any other restriction is a policy of the trial's own, too late for a pod."""
    return manifest["metadata"]["labels"].get(LABEL) in {None, NO_NETWORK[LABEL]}


def key_of(manifest: Mapping[str, Any]) -> str:
    """The same for two pods exactly if they differ in name and trial alone.

    An image counts by the name that it was asked for by: the first trial's is a tag, and from then on it is pinned.
    """
    plain = _nameless(manifest)
    if IMAGE_ASKED in plain["metadata"].get("annotations", {}):
        plain["spec"]["containers"] = [{**one, "image": ""} for one in plain["spec"]["containers"]]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def warm_manifest(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The pod before it has a trial. The kubelet lets it live a whole trial longer than it may wait for one."""
    warm = _nameless(manifest)
    warm["metadata"]["name"] = name
    warm["metadata"]["labels"][WARM_LABEL] = key_of(manifest)
    warm["spec"]["activeDeadlineSeconds"] += int(AGE_SECONDS)
    return warm


def taking(manifest: Mapping[str, Any]) -> dict[str, str | None]:
    """What turns the labels of a warm pod into those of a trial's."""
    labels = manifest["metadata"]["labels"]
    return {name: labels[name] for name in TRIAL_LABELS if name in labels} | {WARM_LABEL: None}


def _nameless(manifest: Mapping[str, Any]) -> dict[str, Any]:
    plain = copy.deepcopy(dict(manifest))
    plain["metadata"].pop("name")
    for label in TRIAL_LABELS:
        plain["metadata"]["labels"].pop(label, None)
    return plain

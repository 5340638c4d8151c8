"""Operator and agent server refuse the same `podOverrides`: the one before anything starts, the other at its start."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harborrl_agent_server.sandboxes import copy_override_rules
from harborrl_agent_server.sandboxes import override_rules as server
from harborrl_operator import sandbox_overrides as operator

FIELDS = sorted({*server.FORBIDDEN, *server.OWN_CONTAINER, "dnsPolicy", "affinity", "workingDir"})

values: st.SearchStrategy[Any] = st.sampled_from([None, False, True, "x", 7, {}, []])
fields = st.dictionaries(st.sampled_from(FIELDS), values, max_size=1)
sources: st.SearchStrategy[Any] = st.sampled_from([{"secretKeyRef": {}}, {"configMapKeyRef": {}}, None])
variables = st.lists(st.fixed_dictionaries({"name": st.just("V"), "valueFrom": sources}), max_size=1)
ports = st.sampled_from([[], [{"containerPort": 1}], [{"containerPort": 1, "hostPort": 1}]])
inside = st.fixed_dictionaries(
    {"name": st.sampled_from(["main", "side"])},
    optional={
        "env": variables,
        "ports": ports,
        "envFrom": st.sampled_from([[], [{"secretRef": {}}], [{"configMapRef": {}}]]),
        "volumeDevices": st.sampled_from([[], [{"name": "d"}]]),
    },
)
containers = st.builds(lambda one, more: {**more, **one}, inside, fields)
kinds = st.sampled_from([*server.VOLUMES, "hostPath", "secret", "projected", "gitRepo"])
volumes = st.lists(kinds.map(lambda kind: {"name": "v", kind: {}}), max_size=2)
pods = st.builds(
    lambda own, parts: {**own, **parts},
    fields,
    st.fixed_dictionaries(
        {},
        optional={
            "volumes": volumes,
            "containers": st.one_of(st.lists(containers, max_size=2), values),
            "initContainers": st.lists(containers, max_size=1),
        },
    ),
)


def test_the_operators_rules_are_a_copy_of_the_servers() -> None:
    assert Path(operator.__file__).read_text() == copy_override_rules.text(), "run `make generate`"


@given(pods)
@settings(deadline=None, max_examples=300)
def test_what_one_refuses_the_other_refuses(pod: dict[str, Any]) -> None:
    here, there = operator.override_fault(pod), next(server.problems(pod), None)
    assert (here is None) == (there is None), (here, there)


@pytest.mark.parametrize("table", ["FORBIDDEN", "OWN_CONTAINER", "VOLUMES", "CONTAINERS"])
def test_both_name_the_same_fields(table: str) -> None:
    """A container's name is how it is found, so it cannot be another one."""
    assert set(getattr(operator, table)) == set(getattr(server, table)) - {"name"}

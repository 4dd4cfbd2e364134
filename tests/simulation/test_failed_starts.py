"""Pods that end before they are ready: how often the operator replaces them, in virtual time."""

from typing import Any

import pytest

from raytide.api import constants

from simulation.environment import Environment
from simulation.manifests import NAME, find, group
from simulation.multi_host_scenarios import slices
from simulation.scenarios import edit, live_cluster, workers
from simulation.test_reported_events import events, run

pytestmark = pytest.mark.looptime

STEP_S = 0.25


async def fail_starts(env: Environment, group_name: str, seconds: float) -> set[str]:
    """End every pod of the group within a quarter of a second; the names of all that were created."""
    names: set[str] = set()
    for _ in range(int(seconds / STEP_S)):
        for name in workers(env, group_name):
            names.add(name)
            env.kube.end_pod(name, "Failed")
        await env.pass_time(STEP_S)
    return names


def pods(env: Environment, group_name: str) -> list[str]:
    """Names of all pods of the group, ended ones included."""
    cluster = env.kube.cluster(NAME)
    assert cluster is not None
    found = [pod["metadata"] for pod in env.kube.pods(cluster["metadata"]["uid"])]
    return [metadata["name"] for metadata in found if metadata["labels"][constants.GROUP_LABEL] == group_name]


def condition(env: Environment, kind: str) -> dict[str, Any]:
    cluster = env.kube.cluster(NAME)
    assert cluster is not None
    return next((each for each in cluster["status"]["conditions"] if each["type"] == kind), {})


@pytest.mark.rule("FD:RC3-3")
@pytest.mark.parametrize(
    ("groups", "failing", "pods_at_once"),
    [
        pytest.param((group("a", 1),), "headgroup", 1, id="the head"),
        pytest.param((group("a", 3),), "a", 3, id="three workers"),
        pytest.param((slices("a", 2, 2),), "a", 4, id="two replicas of two hosts"),
    ],
)
def test_pods_that_end_at_once_are_replaced_after_growing_delays(groups, failing, pods_at_once) -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, *groups)
        names = await fail_starts(env, failing, 60.0)
        # 0, 1, 2, 4, 8, 16 and 32 s: at most eight tries in a minute, and one pod that had been ready.
        assert 4 * pods_at_once <= len(names) <= 9 * pods_at_once

    run(steps)


@pytest.mark.rule("FD:RC3-3")
def test_another_operator_continues_the_delays_and_another_spec_ends_them() -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 1))
        await fail_starts(env, "a", 120.0)
        env.kill()
        assert len(await fail_starts(env, "a", 30.0)) <= 2
        edit(env, lambda spec: find(spec, "a").update(rayStartParams={"num-cpus": "1"}))
        before = set(workers(env, "a"))
        await env.pass_time(5.0)
        assert set(workers(env, "a")) - before

    run(steps)


@pytest.mark.rule("FD:RC3-3")
def test_the_cause_is_in_the_conditions_and_no_state_is_said_to_be_lost() -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 1))
        await fail_starts(env, "a", 30.0)
        missing = condition(env, constants.WORKERS_MISSING)
        assert missing["reason"] == "EndedBeforeReady"
        assert "ended with exit code 137" in missing["message"]
        await fail_starts(env, "headgroup", 30.0)
        ready = condition(env, constants.HEAD_POD_READY)
        assert ready["status"] == "False"
        assert "ended with exit code 137" in ready["message"]
        lost = events(env, constants.HEAD_POD_LOST)
        assert len(lost) == 1, lost  # the first, which had been ready
        assert "never became ready" in events(env, constants.HEAD_POD_NEVER_READY)[0]["message"]

    run(steps)


@pytest.mark.rule("FD:RC3-3")
def test_scale_down_and_named_workers_are_not_delayed() -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 2))
        await fail_starts(env, "a", 60.0)
        assert len(pods(env, "a")) == 2
        edit(env, lambda spec: find(spec, "a").update(replicas=1))
        await env.pass_time(3.0)
        (left,) = pods(env, "a")
        edit(env, lambda spec: find(spec, "a").update(replicas=0, scaleStrategy={"workersToDelete": [left]}))
        await env.pass_time(3.0)
        assert pods(env, "a") == []

    run(steps)

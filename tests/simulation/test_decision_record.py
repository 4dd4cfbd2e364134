"""Operator side of the decision record over time: competing writers and a missing autoscaler (D19, SC:S6)."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raytide.api.autoscaler_decision import GroupDecision
from raytide.diagnosis.model import Diagnosis
from support import virtual_time

from simulation.autoscaled_scenarios import autoscaled
from simulation.environment import Environment, log_errors_as_violations
from simulation.manifests import NAME
from simulation.scenarios import workers
from simulation.scripted_sidecar import GITOPS, write_replicas
from simulation.simulated_kube import Kubelets

pytestmark = pytest.mark.looptime

TEN_MINUTES_S = 600
Steps = Callable[[Environment], Coroutine[Any, Any, None]]


def run(steps: Steps) -> None:
    """Run the steps in a new event loop with virtual time; no violation is allowed."""

    async def run_steps() -> list[str]:
        env = Environment(3, kubelets=Kubelets(start_s=(0.1, 1.0), end_s=(0.1, 0.5)))
        with log_errors_as_violations(env.checks):
            env.open()
            await steps(env)
            await env.close()
        return env.checks.violations

    assert virtual_time.run(run_steps()) == []


def condition(env: Environment, kind: str) -> tuple[str, str, str] | None:
    """Status, reason and message of a condition of the cluster."""
    status = (env.kube.cluster(NAME) or {}).get("status") or {}
    found = next((c for c in status.get("conditions") or () if c["type"] == kind), None)
    return found and (found["status"], found["reason"], found["message"])


@pytest.mark.rule("SC:S6", "D19", "RM:I4")
def test_gitops_writing_replicas_1_every_5_s_for_ten_minutes_deletes_no_worker() -> None:
    async def steps(env: Environment) -> None:
        sidecar = await autoscaled(env, 1, 30)
        await sidecar.decide("a", GroupDecision(20))
        await env.settle()
        reported = []
        for second in range(TEN_MINUTES_S):
            if second % 5 == 0:
                write_replicas(env, "a", 1)
            if second % 10 == 2:
                await sidecar.decide("a", GroupDecision(20))
            await env.pass_time(1.0)
            reported.append(condition(env, "ReplicasContended"))
        assert env.counts()["deleted"] == {}
        assert len(workers(env, "a")) == 20
        assert all(each and each[0] == "True" and GITOPS in each[2] for each in reported[16:])
        assert len(set(reported[16:])) == 1, "the condition does not change"
        await sidecar.decide("a", GroupDecision(20))
        await env.pass_time(16.0)
        assert condition(env, "ReplicasContended") is None, "the loop has stopped"

    run(steps)


@pytest.mark.rule("D19")
def test_replicas_that_gitops_repeats_after_a_scale_down_take_effect_once() -> None:
    async def steps(env: Environment) -> None:
        sidecar = await autoscaled(env, 2, 40)
        write_replicas(env, "a", 30)
        await env.settle()
        assert len(workers(env, "a")) == 30, "a user may scale ahead of the demand"
        env.kill()  # no memory is needed
        await env.pass_time(5.0)
        await sidecar.decide("a", GroupDecision(30, adopted_replicas=30))
        await sidecar.decide("a", GroupDecision(2, delete=tuple(workers(env, "a")[:28]), adopted_replicas=30))
        await env.settle()
        for _ in range(5):
            write_replicas(env, "a", 30)
            env.kill()
            await env.pass_time(10.0)
            await sidecar.decide("a", GroupDecision(2, adopted_replicas=30))
            await env.pass_time(5.0)
        assert env.counts()["created"] == {f"{NAME}/a": 30, f"{NAME}/headgroup": 1}

    run(steps)


@pytest.mark.rule("D19", "RM:I4")
def test_after_five_minutes_without_an_autoscaler_the_spec_applies_without_any_watch_event() -> None:
    async def steps(env: Environment) -> None:
        sidecar = await autoscaled(env, 4, 8)
        (head,) = workers(env, "headgroup")
        env.kube.edit("pods", head, None, _end_autoscaler, subresource="status")
        write_replicas(env, "a", 2)
        await env.pass_time(150.0)
        reported = condition(env, "AutoscalerDown")
        assert reported is not None
        assert reported[:2] == ("False", "AutoscalerNotRunning")
        env.kill()  # the five minutes continue across restarts
        await env.pass_time(152.0)
        reported = condition(env, "AutoscalerDown")
        assert reported is not None
        assert reported[:2] == ("True", "AutoscalerNotRunning")
        cluster = env.kube.cluster(NAME) or {}
        assert cluster["status"]["desiredWorkerReplicas"] == 2
        assert len(workers(env, "a")) == 4, "no worker is deleted"
        write_replicas(env, "a", 6)
        await env.settle()
        env.kube.edit("pods", head, None, _start_autoscaler, subresource="status")
        await sidecar.decide("a", GroupDecision(6))
        await env.pass_time(1.0)
        assert condition(env, "AutoscalerDown") is None

    run(steps)


@pytest.mark.rule("SC:S21")
def test_scaling_limited_is_set_and_removed_within_a_second() -> None:
    async def steps(env: Environment) -> None:
        sidecar = await autoscaled(env, 2, 2)
        await sidecar.decide("a", GroupDecision(2, why=(Diagnosis("MaxReached", 4, "maxReplicas is 2"),)))
        await env.pass_time(1.0)
        fix = "held by: maxReplicas of group a; fix: raise maxReplicas of group a, or wait until work in it ends"
        expected = ("True", "MaxReached", f"group a: 4 × MaxReached (maxReplicas is 2); {fix}")
        assert condition(env, "ScalingLimited") == expected
        await sidecar.decide("a", GroupDecision(2))
        await env.pass_time(1.0)
        assert condition(env, "ScalingLimited") is None

    run(steps)


def _end_autoscaler(pod: dict[str, Any]) -> None:
    _set_autoscaler(pod, {"terminated": {"exitCode": 1}})


def _start_autoscaler(pod: dict[str, Any]) -> None:
    _set_autoscaler(pod, {"running": {}})


def _set_autoscaler(pod: dict[str, Any], state: dict[str, Any]) -> None:
    next(c for c in pod["status"]["containerStatuses"] if c["name"] == "autoscaler")["state"] = state

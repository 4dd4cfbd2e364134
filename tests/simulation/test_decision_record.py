"""The operator's side of the contract as time passes: rival writers, an autoscaler that is gone (D19, SC:S6)."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raytide.api.autoscaler_decision import GroupDecision, Why
from support import virtual_time

from simulation.autoscaled_scenarios import autoscaled
from simulation.manifests import NAME
from simulation.scenarios import workers
from simulation.sidecar_script import GITOPS, rewrite
from simulation.stage import Stage, heard_by
from simulation.world import Kubelets

pytestmark = pytest.mark.looptime

TEN_MINUTES_S = 600
Story = Callable[[Stage], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    """In a loop of its own with virtual time; nothing may be violated."""

    async def tell() -> list[str]:
        stage = Stage(3, kubelets=Kubelets(start_s=(0.1, 1.0), end_s=(0.1, 0.5)))
        with heard_by(stage.judge):
            stage.open()
            await story(stage)
            await stage.close()
        return stage.judge.violations

    assert virtual_time.run(tell()) == []


def condition(stage: Stage, kind: str) -> tuple[str, str, str] | None:
    """Status, reason and message of a condition of the cluster."""
    status = (stage.world.cluster(NAME) or {}).get("status") or {}
    found = next((c for c in status.get("conditions") or () if c["type"] == kind), None)
    return found and (found["status"], found["reason"], found["message"])


@pytest.mark.rule("SC:S6", "D19", "RM:I4")
def test_a_loop_that_applies_replicas_1_every_five_seconds_for_ten_minutes_ends_nobody() -> None:
    async def story(stage: Stage) -> None:
        sidecar = await autoscaled(stage, 1, 30)
        await sidecar.decide("a", GroupDecision(20))
        await stage.settle()
        told = []
        for second in range(TEN_MINUTES_S):
            if second % 5 == 0:
                rewrite(stage, "a", 1)
            if second % 10 == 2:
                await sidecar.decide("a", GroupDecision(20))
            await stage.pass_time(1.0)
            told.append(condition(stage, "ReplicasContended"))
        assert stage.counts()["gone"] == {}
        assert len(workers(stage, "a")) == 20
        assert all(each and each[0] == "True" and GITOPS in each[2] for each in told[16:])
        assert len(set(told[16:])) == 1, "a quarrel of others is told once"
        await sidecar.decide("a", GroupDecision(20))
        await stage.pass_time(16.0)
        assert condition(stage, "ReplicasContended") is None, "the loop has stopped"

    play(story)


@pytest.mark.rule("D19")
def test_gits_thirty_is_obeyed_once_and_does_not_come_and_go() -> None:
    async def story(stage: Stage) -> None:
        sidecar = await autoscaled(stage, 2, 40)
        rewrite(stage, "a", 30)
        await stage.settle()
        assert len(workers(stage, "a")) == 30, "a person may scale ahead of the demand"
        stage.kill()  # nobody has to remember it
        await stage.pass_time(5.0)
        await sidecar.decide("a", GroupDecision(30, adopted_replicas=30))
        await sidecar.decide("a", GroupDecision(2, delete=tuple(workers(stage, "a")[:28]), adopted_replicas=30))
        await stage.settle()
        for _ in range(5):
            rewrite(stage, "a", 30)
            stage.kill()
            await stage.pass_time(10.0)
            await sidecar.decide("a", GroupDecision(2, adopted_replicas=30))
            await stage.pass_time(5.0)
        assert stage.counts()["born"] == {"life/a": 30, "life/headgroup": 1}

    play(story)


@pytest.mark.rule("D19", "RM:I4")
def test_after_five_minutes_without_an_autoscaler_the_spec_rules_though_nothing_happens() -> None:
    async def story(stage: Stage) -> None:
        sidecar = await autoscaled(stage, 4, 8)
        (head,) = workers(stage, "headgroup")
        stage.world.edit("pods", head, None, _end_autoscaler, subresource="status")
        rewrite(stage, "a", 2)
        await stage.pass_time(150.0)
        told = condition(stage, "AutoscalerDown")
        assert told is not None
        assert told[:2] == ("False", "AutoscalerNotRunning")
        stage.kill()  # the five minutes go on counting
        await stage.pass_time(152.0)
        told = condition(stage, "AutoscalerDown")
        assert told is not None
        assert told[:2] == ("True", "AutoscalerNotRunning")
        cluster = stage.world.cluster(NAME) or {}
        assert cluster["status"]["desiredWorkerReplicas"] == 2
        assert len(workers(stage, "a")) == 4, "nobody is killed for it"
        rewrite(stage, "a", 6)
        await stage.settle()
        stage.world.edit("pods", head, None, _start_autoscaler, subresource="status")
        await sidecar.decide("a", GroupDecision(6))
        await stage.pass_time(1.0)
        assert condition(stage, "AutoscalerDown") is None

    play(story)


@pytest.mark.rule("SC:S21")
def test_why_it_does_not_scale_stands_in_the_object_within_a_second_and_goes_as_fast() -> None:
    async def story(stage: Stage) -> None:
        sidecar = await autoscaled(stage, 2, 2)
        await sidecar.decide("a", GroupDecision(2, why=(Why("MaxReached", 4, "maxReplicas is 2"),)))
        await stage.pass_time(1.0)
        said = ("True", "MaxReached", "group a: 4 × MaxReached (maxReplicas is 2)")
        assert condition(stage, "ScalingLimited") == said
        await sidecar.decide("a", GroupDecision(2))
        await stage.pass_time(1.0)
        assert condition(stage, "ScalingLimited") is None

    play(story)


def _end_autoscaler(pod: dict[str, Any]) -> None:
    _set_autoscaler(pod, {"terminated": {"exitCode": 1}})


def _start_autoscaler(pod: dict[str, Any]) -> None:
    _set_autoscaler(pod, {"running": {}})


def _set_autoscaler(pod: dict[str, Any], state: dict[str, Any]) -> None:
    next(c for c in pod["status"]["containerStatuses"] if c["name"] == "autoscaler")["state"] = state

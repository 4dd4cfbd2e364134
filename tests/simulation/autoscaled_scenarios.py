"""Which lives of autoscaled RayClusters is every fault tried on?

Beside the stories of scenarios.py those in which an autoscaler decides, played by a script: it is contended, switched off
and on, paused, and loses its head. The judge reads the decision record as well as the spec, so nobody may go whom no order
names, at any fault (RM §2.3 S10 and S11, D19, SC:S6).
"""

from typing import Any

from raytide.api.autoscaler_decision import GroupDecision

from simulation.manifests import NAME, find, group, new_cluster
from simulation.scenarios import Scenario, edit, workers
from simulation.sidecar_script import GITOPS, ScriptedSidecar, rewrite
from simulation.stage import Stage
from simulation.wishes import SWITCH
from simulation.world import RAYCLUSTERS

CONTENDED = "ReplicasContended"


async def autoscaled(stage: Stage, replicas: int, most: int) -> ScriptedSidecar:
    """The prelude: one group whose autoscaler has decided what stands in the spec, and has been content for a while."""
    cluster = new_cluster([group("a", replicas, most)])
    cluster["spec"]["enableInTreeAutoscaling"] = True
    stage.world.create(cluster)
    stage.start()
    await stage.settle()
    sidecar = ScriptedSidecar(stage)
    await sidecar.decide("a", GroupDecision(replicas))
    await stage.pass_time(10.0)
    stage.begin()
    return sidecar


async def two_writers(stage: Stage) -> None:
    """RM:S11: a loop rewrites `replicas`, down and up; nobody goes for it, and a higher number counts once."""
    sidecar = await autoscaled(stage, 3, 12)
    await sidecar.decide("a", GroupDecision(6))
    await stage.settle()
    rewrite(stage, "a", 1)
    await stage.pass_time(4.0)
    rewrite(stage, "a", 8)
    await stage.settle()
    await sidecar.decide("a", GroupDecision(8, adopted_replicas=8))
    await stage.settle()
    leaving = tuple(workers(stage, "a")[:3])
    await sidecar.decide("a", GroupDecision(5, adopted_replicas=8))
    await stage.pass_time(2.0)
    await sidecar.decide("a", GroupDecision(5, delete=leaving, adopted_replicas=8))
    await stage.settle()
    rewrite(stage, "a", 8)
    await stage.pass_time(12.0)
    _expect(stage, contended=True)
    await sidecar.decide("a", GroupDecision(5, adopted_replicas=8))
    await stage.settle()
    await stage.pass_time(16.0)
    _expect(stage, contended=False)
    await stage.pass_time(20.0)  # the watches are opened anew within this time: that belongs to the story


async def on_and_off(stage: Stage) -> None:
    """RM:S10: switched off the spec rules and may shrink by choice; switched on the record does; paused the spec again."""
    sidecar = await autoscaled(stage, 4, 8)
    edit(stage, lambda spec: (spec.update(enableInTreeAutoscaling=False), find(spec, "a").update(replicas=2)))
    await stage.settle()
    edit(stage, lambda spec: spec.update(enableInTreeAutoscaling=True))
    await stage.settle()
    pause(stage, "paused")
    rewrite(stage, "a", 6)
    await stage.settle()
    pause(stage, "")
    await stage.settle()
    await sidecar.decide("a", GroupDecision(5, adopted_replicas=6))
    await stage.pass_time(1.0)
    await sidecar.decide("a", GroupDecision(5, delete=(workers(stage, "a")[0],), adopted_replicas=6))
    await stage.settle()


async def head_lost(stage: Stage) -> None:
    """The head goes and its autoscaler with it; meanwhile a loop writes 1, and the last decision stands."""
    sidecar = await autoscaled(stage, 2, 8)
    await sidecar.decide("a", GroupDecision(5))
    await stage.settle()
    stage.world.kill_pod(workers(stage, "headgroup")[0], "Failed")
    await stage.pass_time(0.3)
    rewrite(stage, "a", 1)
    await stage.settle()
    await stage.pass_time(5.0)
    await sidecar.decide("a", GroupDecision(6))
    await stage.settle()
    await stage.pass_time(16.0)


def pause(stage: Stage, value: str) -> None:
    """A person takes `replicas` back, or gives them away again."""

    def change(obj: dict[str, Any]) -> None:
        obj["metadata"].setdefault("annotations", {})[SWITCH] = value

    stage.world.edit(RAYCLUSTERS, NAME, None, change)


def _expect(stage: Stage, *, contended: bool) -> None:
    """Without a fault in between, the condition says so in time, and names who it is."""
    if stage.script.met:
        return
    status = (stage.world.cluster(NAME) or {}).get("status") or {}
    told = [c for c in status.get("conditions") or () if c["type"] == CONTENDED]
    is_told = bool(told) and told[0]["status"] == "True" and GITOPS in told[0]["message"]
    if is_told is not contended or (told and not contended):
        stage.judge.note(f"contended: {contended}, told: {told}")


AUTOSCALED = (
    Scenario("autoscaler-two-writers", two_writers),
    Scenario("autoscaler-on-and-off", on_and_off),
    Scenario("autoscaler-head-lost", head_lost),
)
"""Each with every fault at every point."""

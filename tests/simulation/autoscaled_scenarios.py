"""Scenarios of autoscaled RayClusters with a scripted autoscaler, on which each fault is tried.

The autoscaler competes with another writer of `replicas`, is switched off and on, is paused, and loses its head. The checks
read the decision record as well as the spec, so no worker may be deleted that no decision names, at any fault (RM §2.3 S10
and S11, D19, SC:S6).
"""

from typing import Any

from raytide.api.autoscaler_decision import GroupDecision

from simulation.desired_state import AUTOSCALER_ANNOTATION
from simulation.environment import Environment
from simulation.manifests import NAME, find, group, new_cluster
from simulation.scenarios import Scenario, edit, workers
from simulation.scripted_sidecar import GITOPS, ScriptedSidecar, write_replicas
from simulation.simulated_kube import RAYCLUSTERS

CONTENDED = "ReplicasContended"


async def autoscaled(env: Environment, replicas: int, most: int) -> ScriptedSidecar:
    """The setup: one group whose autoscaler decided the replicas of the spec 10 s ago."""
    cluster = new_cluster([group("a", replicas, most)])
    cluster["spec"]["enableInTreeAutoscaling"] = True
    env.kube.create(cluster)
    env.start()
    await env.settle()
    sidecar = ScriptedSidecar(env)
    await sidecar.decide("a", GroupDecision(replicas))
    await env.pass_time(10.0)
    env.start_recording()
    return sidecar


async def two_writers(env: Environment) -> None:
    """RM:S11: another writer lowers and raises `replicas`; no worker is deleted for it, and a higher number counts once."""
    sidecar = await autoscaled(env, 3, 12)
    await sidecar.decide("a", GroupDecision(6))
    await env.settle()
    write_replicas(env, "a", 1)
    await env.pass_time(4.0)
    write_replicas(env, "a", 8)
    await env.settle()
    await sidecar.decide("a", GroupDecision(8, adopted_replicas=8))
    await env.settle()
    leaving = tuple(workers(env, "a")[:3])
    await sidecar.decide("a", GroupDecision(5, adopted_replicas=8))
    await env.pass_time(2.0)
    await sidecar.decide("a", GroupDecision(5, delete=leaving, adopted_replicas=8))
    await env.settle()
    write_replicas(env, "a", 8)
    await env.pass_time(12.0)
    _expect_contended(env, contended=True)
    await sidecar.decide("a", GroupDecision(5, adopted_replicas=8))
    await env.settle()
    await env.pass_time(16.0)
    _expect_contended(env, contended=False)
    await env.pass_time(20.0)  # the watches are reopened within this time: part of the scenario


async def switched_on_and_off(env: Environment) -> None:
    """RM:S10: switched off, the spec applies and the operator chooses victims; switched on, the record applies; paused, the spec."""
    sidecar = await autoscaled(env, 4, 8)
    edit(env, lambda spec: (spec.update(enableInTreeAutoscaling=False), find(spec, "a").update(replicas=2)))
    await env.settle()
    edit(env, lambda spec: spec.update(enableInTreeAutoscaling=True))
    await env.settle()
    set_autoscaler_annotation(env, "paused")
    write_replicas(env, "a", 6)
    await env.settle()
    set_autoscaler_annotation(env, "")
    await env.settle()
    await sidecar.decide("a", GroupDecision(5, adopted_replicas=6))
    await env.pass_time(1.0)
    await sidecar.decide("a", GroupDecision(5, delete=(workers(env, "a")[0],), adopted_replicas=6))
    await env.settle()


async def head_lost(env: Environment) -> None:
    """The head fails with its autoscaler; meanwhile another writer sets 1, and the last decision still applies."""
    sidecar = await autoscaled(env, 2, 8)
    await sidecar.decide("a", GroupDecision(5))
    await env.settle()
    env.kube.end_pod(workers(env, "headgroup")[0], "Failed")
    await env.pass_time(0.3)
    write_replicas(env, "a", 1)
    await env.settle()
    await env.pass_time(5.0)
    await sidecar.decide("a", GroupDecision(6))
    await env.settle()
    await env.pass_time(16.0)


def set_autoscaler_annotation(env: Environment, value: str) -> None:
    """A user pauses or resumes the autoscaler."""

    def change(obj: dict[str, Any]) -> None:
        obj["metadata"].setdefault("annotations", {})[AUTOSCALER_ANNOTATION] = value

    env.kube.edit(RAYCLUSTERS, NAME, None, change)


def _expect_contended(env: Environment, *, contended: bool) -> None:
    """Check that, without a fault meanwhile, the condition is set in time and names the other writer."""
    if env.script.met:
        return
    status = (env.kube.cluster(NAME) or {}).get("status") or {}
    reported = [c for c in status.get("conditions") or () if c["type"] == CONTENDED]
    is_reported = bool(reported) and reported[0]["status"] == "True" and GITOPS in reported[0]["message"]
    if is_reported is not contended or (reported and not contended):
        env.checks.add_violation(f"contended: {contended}, reported: {reported}")


AUTOSCALED = (
    Scenario("autoscaler-two-writers", two_writers),
    Scenario("autoscaler-on-and-off", switched_on_and_off),
    Scenario("autoscaler-head-lost", head_lost),
)
"""Each fault is tried at every point of these."""

"""A simulated cloud on a real control plane: machines that start late or never, and slow image pulls.

The operator, `raytide autoscaler` and kube-scheduler are processes; the test plays Ray (acceptance/scaled.py) and the node
autoscaler: it says in events which pods get a machine, and creates the Node some time later, which kwok then runs. How long
things take is compressed, the product's limits with them where they can be set. The same worlds over many random days are
in tests/simulation/cloud_day.py (FD:AS-A1, FD:AS-A2, SC:S2).
"""

import asyncio
import secrets
from datetime import UTC, datetime

import pytest
import yaml

from acceptance.fleet import eventually
from acceptance.job_environment import JobEnv
from acceptance.scaled import scene
from kube_tools import find_tool
from support.builders import group, template
from support.kwok_process import STAGES, Kwok
from support.plane_admin import PlaneAdmin

pytestmark = [pytest.mark.kube, pytest.mark.timeout(240)]

SPOT, ON_DEMAND = "spot", "on-demand"
POOL, PULL = "example.com/pool", "example.com/pull"
MOST, DEMAND = 12, 6
ANSWER_S = 2.0
"""Until the node autoscaler records an event about a pod."""
MACHINE_S = 40.0
"""More than a pod may wait without a node autoscaler (8 s), than a first word of a node autoscaler may take (15 s), and than the
next group may take to do the work (SC:S2, 30 s)."""
PULL_S = 40
SHORT_S = "10"
"""Every limit that a pull must not be held to."""
NEXT_GROUP_S = 30.0
"""SC:S2."""
MARGIN_S = 20.0
"""From a machine, or an image, to a task that runs there."""


@pytest.fixture(scope="module")
def kwok(kube_plane, tmp_path_factory):
    """Machines, on which the image pull takes as long as an annotation of the pod."""
    folder = tmp_path_factory.mktemp("kwok")
    stages = list(yaml.safe_load_all(STAGES.read_text()))
    (runs,) = [env for env in stages if env["metadata"]["name"] == "pod-runs"]
    wait = {"expressionFrom": f'.metadata.annotations["{PULL}"]'}
    runs["spec"]["delay"] = {"durationMilliseconds": 0, "durationFrom": wait}
    slow = folder / "stages.yaml"
    slow.write_text(yaml.safe_dump_all(stages))
    with Kwok(find_tool("kwok"), kube_plane.kubeconfig, folder / "kwok.log", slow):
        yield


@pytest.fixture
async def env(kube_plane, kwok, tmp_path, record_property):
    """A namespace with a scheduler, and a machine for heads."""
    async with PlaneAdmin(kube_plane.server, kube_plane.authority, kube_plane.admin_token) as admin:
        env = JobEnv(kube_plane, admin, tmp_path, record_property)
        await env.begin()
        try:
            await add_machine(env, "head", cpu="8")
            yield env
        finally:
            await env.end()


async def add_machine(env, pool, *, cpu="1"):
    """One more in that pool: a worker has it for itself, and no pod of another test takes it."""
    taint = {"key": POOL, "value": pool, "effect": "NoSchedule"}
    await env.node(f"{pool}-{secrets.token_hex(3)}", labels={POOL: pool}, taints=[taint], cpu=cpu)


class NodeAutoscaler:
    """As Cluster Autoscaler: a word about each pod that no node can take, and a machine for it later."""

    def __init__(self, env, **machine_s):
        """`machine_s`: by pool, how long a machine takes; a pool that is not there gets neither word nor machine."""
        self._env = env
        self._machine_s = machine_s
        self._seen = set()

    async def run(self):
        """Until cancelled."""
        while True:
            for pod in list(self._env.pods.by_name.values()):
                uid, pool = pod["metadata"]["uid"], pod["spec"].get("nodeSelector", {}).get(POOL)
                if pool in self._machine_s and uid not in self._seen and is_unschedulable(pod):
                    self._seen.add(uid)
                    self._env.run(self._serve(pod, pool))
            await asyncio.sleep(0.2)

    async def _serve(self, pod, pool):
        await asyncio.sleep(ANSWER_S)
        name, now = pod["metadata"]["name"], f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        event = {
            "metadata": {"generateName": f"{name}."},
            "involvedObject": {
                "kind": "Pod",
                "namespace": self._env.namespace,
                "name": name,
                "uid": pod["metadata"]["uid"],
            },
            "reason": "TriggeredScaleUp",
            "type": "Normal",
            "message": f"pod triggered scale-up: [{{{pool} 0->1 (max: {MOST})}}]",
            "source": {"component": "cluster-autoscaler"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._env.admin.call("POST", f"/api/v1/namespaces/{self._env.namespace}/events", event)
        await asyncio.sleep(self._machine_s[pool])
        await add_machine(self._env, pool)


def is_unschedulable(pod):
    """The message of kube-scheduler."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


def pool_group(name, priority, **annotations):
    """Workers for machines of one pool."""
    made = template("ray-worker", nodeSelector={POOL: name}, tolerations=[{"key": POOL, "operator": "Exists"}])
    return group(
        name, replicas=0, high=MOST, priority=priority, template={**made, "metadata": {"annotations": annotations}}
    )


def on_head_machine(manifest):
    """The head leaves the workers' machines alone."""
    head = manifest["spec"]["headGroupSpec"]["template"]["spec"]
    head |= {"nodeSelector": {POOL: "head"}, "tolerations": [{"key": POOL, "operator": "Exists"}]}
    return manifest


async def all_run(scaled, *, within_s):
    """Wait until every task runs; returns how long that took."""
    began = asyncio.get_running_loop().time()

    async def do_run():
        return scaled.ray.running == DEMAND

    try:
        await eventually(f"{DEMAND} tasks run", do_run, within_s=within_s)
    except AssertionError as error:
        last = "\n".join(scaled.sidecar.log.read_text().splitlines()[-15:])
        raise AssertionError(
            f"{error}; {scaled.ray.running} do; made: {made(scaled)}; its autoscaler:\n{last}"
        ) from None
    return asyncio.get_running_loop().time() - began


def made(scaled):
    """How many workers of each group were ever made."""
    return {name: sum(f"-{name}-worker-" in pod for pod in scaled.env.pods.created) for name in (SPOT, ON_DEMAND)}


def ended(scaled):
    """Names of deleted pods."""
    return [pod for pod in scaled.env.pods.doomed if "-worker-" in pod]


@pytest.mark.rule("FD:AS-A2")
async def test_machines_that_come_late_are_waited_for_and_no_pod_is_made_twice(env):
    await add_machine(env, ON_DEMAND, cpu=str(MOST))  # to be had at once: nothing but patience keeps work from it
    scaled = await scene(env, pool_group(SPOT, 10), pool_group(ON_DEMAND, 5), change=on_head_machine)
    env.run(NodeAutoscaler(env, **{SPOT: MACHINE_S}).run())
    scaled.ray.demand = DEMAND
    took_s = await all_run(scaled, within_s=ANSWER_S + MACHINE_S + MARGIN_S)
    env.record(f"machines after {MACHINE_S:.0f} s: {DEMAND} tasks run after {took_s:.1f} s, made {made(scaled)}")
    assert took_s >= MACHINE_S, "the machines came late"
    assert (made(scaled), ended(scaled)) == ({SPOT: DEMAND, ON_DEMAND: 0}, [])


@pytest.mark.rule("FD:AS-A1")
async def test_no_pod_is_given_up_during_a_long_image_pull(env, monkeypatch):
    for limit in ("UNSCHEDULABLE", "NODE_ANSWER", "NODE", "SCHEDULE", "BROKEN", "REGISTER"):
        monkeypatch.setenv(f"RAYTIDE_AUTOSCALER_{limit}_TIMEOUT_S", SHORT_S)
    for pool in (SPOT, ON_DEMAND):
        await add_machine(env, pool, cpu=str(MOST))
    slow = pool_group(SPOT, 10, **{PULL: f"{PULL_S}s"})
    scaled = await scene(env, slow, pool_group(ON_DEMAND, 5), change=on_head_machine)
    scaled.ray.demand = DEMAND
    took_s = await all_run(scaled, within_s=PULL_S + MARGIN_S)
    env.record(f"images of {PULL_S} s: {DEMAND} tasks run after {took_s:.1f} s, made {made(scaled)}")
    assert took_s >= PULL_S, "the images took long"
    assert (made(scaled), ended(scaled)) == ({SPOT: DEMAND, ON_DEMAND: 0}, [])


@pytest.mark.rule("SC:S2", "FD:AS-A2")
async def test_the_next_group_is_launched_in_time_if_machines_of_a_group_never_start(env):
    scaled = await scene(env, pool_group(SPOT, 10), pool_group(ON_DEMAND, 5), change=on_head_machine)
    env.run(NodeAutoscaler(env, **{ON_DEMAND: 5.0}).run())
    given_s = await scaled.ask_for(DEMAND, DEMAND, within_s=NEXT_GROUP_S, group=ON_DEMAND)
    took_s = await all_run(scaled, within_s=ANSWER_S + 5.0 + MARGIN_S)

    async def are_withdrawn():
        return not scaled.workers(SPOT)

    await eventually("the pods of the first group are withdrawn", are_withdrawn)
    env.record(
        f"no machines: the next group has {DEMAND} workers after {given_s:.1f} s, tasks run {took_s:.1f} s later"
    )
    assert made(scaled)[ON_DEMAND] == DEMAND
    assert made(scaled)[SPOT] <= DEMAND, "it was tried once"
    assert not [pod for pod in ended(scaled) if f"-{SPOT}-" not in pod], "no busy worker is deleted"

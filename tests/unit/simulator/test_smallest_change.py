"""The smallest change of one workload that lets another one start: found, and tried, by a simulation."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from raytide.api import constants
from raytide.api.capacity import capacity_node_from_object, capacity_pod_from_object
from raytide.api.config import SharingConfig
from raytide.api.meta import Key
from raytide.api.pod import decode_pod
from raytide.api.raycluster import RayCluster
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pod import decode_job_pod
from raytide.explain import messages
from raytide.explain.explain import explain
from raytide.explain.model import RAYCLUSTER, TRAININGJOB, Explanation, Field, Objects
from raytide.simulator.inputs import PlanInputs
from raytide.simulator.smallest_change import RayClusterPods, with_fixes
from support.plan_snapshots import job, node, pod

NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": f"Insufficient {GPU}"}

pytestmark = pytest.mark.rule("FD:UX3-1")


@dataclass
class World:
    """Objects of a cluster, as the API has them."""

    nodes: list[dict]
    clusters: dict[Key, dict] = field(default_factory=dict)
    jobs: dict[Key, dict] = field(default_factory=dict)
    pods: list[dict] = field(default_factory=list)

    def ray(
        self, name: str, groups: dict[str, list[str]], *, namespace: str = "ml", gpu: int = 1, **spec: Any
    ) -> "World":
        """A RayCluster whose groups have a worker on each of these nodes; an empty name is none."""
        owner = {"kind": "RayCluster", "name": name, "uid": f"uid-{name}", "controller": True}
        for group, nodes in groups.items():
            for index, on in enumerate(nodes):
                labels = {
                    constants.CLUSTER_LABEL: name,
                    constants.GROUP_LABEL: group,
                    constants.NODE_TYPE_LABEL: constants.WORKER,
                }
                made = pod(
                    f"{name}-{group}-{index}", on=on, namespace=namespace, labels=labels, ownerReferences=[owner]
                )
                made["metadata"] |= {
                    "uid": f"uid-{name}-{group}-{index}",
                    "creationTimestamp": f"2026-01-01T00:00:{index:02d}Z",
                }
                made["spec"]["containers"][0]["resources"] = {"requests": {GPU: str(gpu)}, "limits": {GPU: str(gpu)}}
                if not on:
                    made["status"]["conditions"] = [UNSCHEDULABLE]
                self.pods.append(made)
        template = {"spec": {"containers": [{"name": "ray", "image": "ray"}]}}
        specs = [
            {"groupName": group, "replicas": len(nodes), "minReplicas": 0, "maxReplicas": 9, "template": template}
            for group, nodes in groups.items()
        ]
        self.clusters[Key(namespace, name)] = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1},
            "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": specs, **spec},
            "status": {"observedGeneration": 1, "state": "ready"},
        }
        return self

    def train(
        self,
        name: str,
        low: int,
        high: int,
        nodes: list[str],
        gpu: int = 1,
        *,
        reason: str = "InsufficientGPU",
        **fields: Any,
    ) -> "World":
        """A TrainingJob with a trainer on each of these nodes; without one it waits for that reason."""
        made = job(name, low, high, len(nodes) or None, gpu=gpu, cpu="1m", **fields)
        made["metadata"] |= {"generation": 1}
        if not nodes:
            waiting = {"type": "Waiting", "status": "True", "reason": reason, "message": "needs GPUs"}
            made["status"] = {"observedGeneration": 1, "conditions": [waiting]}
        self.jobs[Key(made["metadata"]["namespace"], name)] = made
        for index, on in enumerate(nodes):
            labels = {
                "raytide.io/training-job": name,
                "raytide.io/training-role": "trainer",
                "raytide.io/training-index": str(index),
            }
            owner = {"kind": "TrainingJob", "name": name, "uid": f"uid-{name}", "controller": True}
            trainer = pod(f"{name}-trainer-{index}", on=on, cpu="1m", labels=labels, ownerReferences=[owner])
            trainer["spec"]["containers"][0]["resources"]["limits"] = {GPU: str(gpu)}
            self.pods.append(trainer)
        return self

    def other(self, name: str, on: str = "", gpu: int = 1, priority: int = 0) -> "World":
        """A pod of neither kind."""
        made = pod(name, on=on, cpu="1m")
        made["spec"] |= {"priority": priority}
        made["spec"]["containers"][0]["resources"] = {"limits": {GPU: str(gpu)}, "requests": {GPU: str(gpu)}}
        self.pods.append(made)
        return self

    @property
    def inputs(self) -> PlanInputs:
        return PlanInputs(
            nodes=tuple(map(capacity_node_from_object, self.nodes)),
            pods=tuple(map(capacity_pod_from_object, self.pods)),
            jobs=tuple(map(TrainingJob.parse, self.jobs.values())),
            is_live=True,
        )

    def why(
        self,
        name: str,
        *,
        namespace: str = "ml",
        kind: str = RAYCLUSTER,
        has_nodes: bool = False,
        config: SharingConfig = SharingConfig(),  # noqa: B008 - frozen
    ) -> Explanation:
        """The explanation of that workload, as it is with all rights; more nodes as a fix only with `has_nodes`."""
        key = Key(namespace, name)
        of_kind, label, decode = (
            (self.clusters, constants.CLUSTER_LABEL, decode_pod)
            if kind == RAYCLUSTER
            else (self.jobs, "raytide.io/training-job", decode_job_pod)
        )
        objects = Objects(kind, of_kind[key], self._pods(label, name, decode), cluster=self.inputs)
        clusters = [
            RayClusterPods(
                RayCluster.parse(obj), self._pods(constants.CLUSTER_LABEL, obj["metadata"]["name"], decode_pod)
            )
            for at, obj in self.clusters.items()
            if (kind, at) != (RAYCLUSTER, key)
        ]
        found = with_fixes(explain(objects, NOW), self.inputs, clusters, config=config, now=NOW)
        kept = tuple(each for each in found.changes if has_nodes or each.field is not Field.NODES)
        return replace(found, changes=kept)

    def _pods(self, label: str, name: str, decode: Any) -> tuple:
        of_it = [each for each in self.pods if (each["metadata"].get("labels") or {}).get(label) == name]
        return tuple(decode(msgspec.json.encode(each)) for each in of_it)


def fixes(found: Explanation) -> list[str]:
    return [messages.change(each) for each in found.changes]


def test_a_stuck_raycluster_is_told_the_size_of_the_holder_with_which_it_starts():
    """Six GPUs, three are free; it needs four."""
    world = World([node("n1", cpu=9, gpu=6)])
    world.ray("vision-rl", {"gpu": ["n1"] * 3}).ray("serve", {"gpu": [""] * 4}, namespace="web")
    found = world.why("serve", namespace="web")
    assert found.first.holder == f"ml/vision-rl (RayCluster) 3 {GPU}"
    assert fixes(found) == [
        "scale RayCluster ml/vision-rl from 3 to 2: then web/serve has 4 workers, ml/vision-rl 2 instead of 3"
    ]
    (change,) = found.changes
    assert messages.command_of(change) == "raytide scale raycluster/vision-rl 2 -n ml"
    assert [(each.name, each.without, each.having) for each in change.effects] == [("serve", 0, 4), ("vision-rl", 3, 2)]


def test_of_several_groups_the_one_that_has_it_is_named():
    world = World([node("n1", cpu=9, gpu=4)])
    world.ray("rl", {"a b": ["n1"] * 3, "cpu": ["n1"]}, gpu=1).ray("serve", {"gpu": [""] * 2})
    found = world.why("serve")
    assert (
        fixes(found)[0]
        == "scale group a b of RayCluster ml/rl from 3 to 1: then ml/serve has 2 workers, ml/rl 2 instead of 4"
    )
    assert messages.command_of(found.changes[0]) == "raytide scale raycluster/rl 'a b=1' -n ml"


def test_the_workers_that_the_controller_would_end_are_those_that_count():
    """The newest end first, on both nodes in turn: two GPUs on one node are free only after three of four have ended."""
    world = World([node("n1", cpu=9, gpu=2), node("n2", cpu=9, gpu=2)])
    world.ray("rl", {"gpu": ["n1", "n2", "n1", "n2"]}).ray("serve", {"gpu": [""]}, gpu=2)
    assert fixes(world.why("serve")) == [
        "scale RayCluster ml/rl from 4 to 1: then ml/serve has 1 worker, ml/rl 1 instead of 4"
    ]


def test_pods_of_equal_priority_that_wait_as_well_are_served_first():
    world = World([node("n1", cpu=9, gpu=3)]).other("zz-waits", gpu=1)
    world.ray("rl", {"gpu": ["n1"] * 3}).ray("serve", {"gpu": [""]})
    assert fixes(world.why("serve")) == [
        "scale RayCluster ml/rl from 3 to 1: then ml/serve has 1 worker, ml/rl 1 instead of 3"
    ]


def test_a_workload_that_gives_fewer_pods_comes_first():
    world = World([node("n1", cpu=9, gpu=8)])
    world.ray("large", {"gpu": ["n1"] * 2}, gpu=3).ray("small", {"gpu": ["n1"] * 2}).ray("serve", {"gpu": [""] * 2})
    assert fixes(world.why("serve")) == [
        "scale RayCluster ml/large from 2 to 1: then ml/serve has 2 workers, ml/large 1 instead of 2",
        "scale RayCluster ml/small from 2 to 0: then ml/serve has 2 workers, ml/small 0 instead of 2",
    ]


@pytest.mark.parametrize(
    "spec",
    [pytest.param({"enableInTreeAutoscaling": True}, id="Ray's demand sizes it"), pytest.param({}, id="minReplicas")],
)
def test_a_holder_that_cannot_be_scaled_down_may_be_suspended(spec):
    world = World([node("n1", cpu=9, gpu=3)])
    world.ray("rl", {"gpu": ["n1"] * 3}, **spec).ray("serve", {"gpu": [""]})
    world.clusters[Key("ml", "rl")]["spec"]["workerGroupSpecs"][0]["minReplicas"] = 3
    (change,) = world.why("serve").changes
    assert (
        messages.change(change)
        == "suspend RayCluster ml/rl, which ends 3 pods: then ml/serve has 1 worker, ml/rl 0 instead of 3"
    )
    assert (
        messages.command_of(change)
        == """kubectl patch raycluster rl -n ml --type merge -p '{"spec":{"suspend":true}}'"""
    )


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"managedBy": "kueue.x-k8s.io/multikueue"}, id="another controller manages it"),
        pytest.param({"suspend": True}, id="its pods are about to end"),
    ],
)
def test_a_raycluster_that_the_operator_does_not_size_is_not_named(spec):
    world = World([node("n1", cpu=9, gpu=3)]).ray("rl", {"gpu": ["n1"] * 3}, **spec).ray("serve", {"gpu": [""]})
    assert world.why("serve").changes == ()


@pytest.mark.parametrize(
    ("world", "why"),
    [
        pytest.param(
            World([node("n1", cpu=9, gpu=1)]).other("web", "n1").ray("serve", {"gpu": [""]}),
            "serve",
            id="a pod of neither kind",
        ),
        pytest.param(
            World([node("n1", cpu=9, gpu=2)]).ray("rl", {"gpu": ["n1"] * 2}).ray("serve", {"gpu": [""]}, gpu=3),
            "serve",
            id="no node could hold the pod",
        ),
        pytest.param(
            World([node("n1", cpu=9, gpu=4)])
            .other("web", "n1", 3)
            .ray("rl", {"gpu": ["n1"]})
            .ray("serve", {"gpu": [""]}, gpu=2),
            "serve",
            id="the holder does not have enough",
        ),
    ],
)
def test_no_fix_is_named_where_none_would_do(world, why):
    found = world.why(why)
    assert found.changes == ()
    impossible = any(short.is_impossible for each in found.blockers for short in each.shortages)
    assert (messages.NO_FIX in found.notes) is not impossible


def test_a_gang_is_told_a_holder_to_scale_and_the_minimum_that_there_is_capacity_for():
    world = World([node("n1", cpu=9, gpu=6)])
    world.ray("rl", {"gpu": ["n1"] * 3}).train("gang", 4, 6, [])
    found = world.why("gang", namespace="default", kind=TRAININGJOB)
    assert fixes(found) == [
        "scale RayCluster ml/rl from 3 to 2: then default/gang has 4 trainers, ml/rl 2 instead of 3",
        "lower min-instance from 4 to 3: then default/gang has 3 trainers",
    ]
    assert messages.command_of(found.changes[1]) == (
        """kubectl patch trainingjob gang -n default --type merge -p '{"spec":{"trainer":{"min-instance":3}}}'"""
    )


def test_a_job_at_its_minimum_is_scaled_down_by_both_bounds_and_the_holder_says_why_it_gives_nothing():
    world = World([node("n1", cpu=9, gpu=4)])
    world.train("big", 4, 4, ["n1"] * 4).train("gang", 2, 2, [])
    found = world.why("gang", namespace="default", kind=TRAININGJOB)
    assert found.first.holder == f"default/big (TrainingJob) 4 {GPU} (it is at its minimum)"
    change = found.changes[0]
    assert messages.change(change) == (
        "lower max-instance and min-instance of TrainingJob default/big to 2, which is below the 4 that its owner asks for: then default/gang has 2 trainers, default/big 2 instead of 4"
    )
    assert messages.command_of(change).endswith("""-p '{"spec":{"trainer":{"max-instance":2,"min-instance":2}}}'""")
    assert change.field is Field.MAX_INSTANCE
    assert [(each.name, each.without, each.having) for each in change.effects] == [("gang", 0, 2), ("big", 4, 2)]


def test_a_job_that_the_next_passes_start_needs_no_fix():
    world = World([node("n1", cpu=9, gpu=4)]).train("big", 1, 4, ["n1"] * 4).train("gang", 2, 2, [])
    found = world.why("gang", namespace="default", kind=TRAININGJOB)
    assert found.changes == ()
    assert "(it is scaled down to 1 for jobs below their minimum" in found.first.holder


def test_other_jobs_that_change_are_effects():
    """What the gang does not need of the freed capacity, another job grows into."""
    world = World([node("n1", cpu=9, gpu=6)])
    world.ray("rl", {"gpu": ["n1"] * 2}, gpu=2).train("other", 1, 3, ["n1"]).train("gang", 2, 2, [])
    found = world.why("gang", namespace="default", kind=TRAININGJOB)
    effects = {each.name: (each.without, each.having) for each in found.changes[0].effects}
    assert effects["gang"] == (0, 2)
    assert effects["rl"] == (2, 1)


def test_a_cluster_too_large_to_simulate_in_seconds_gets_no_fix(monkeypatch):
    world = World([node("n1", cpu=9, gpu=1)]).ray("rl", {"gpu": ["n1"]}).ray("serve", {"gpu": [""]})
    assert world.why("serve").changes
    monkeypatch.setattr("raytide.simulator.smallest_change.MAX_WORK", 1)
    found = world.why("serve")
    assert found.changes == ()
    assert found.notes == (messages.TOO_LARGE_TO_SIMULATE,)


@pytest.mark.rule("FD:TJ3-4")
def test_a_gang_that_trainer_0_of_another_job_keeps_waiting_is_told_to_suspend_that_job():
    """Scaled down, the job would keep trainer 0, which is on the only node that is large enough."""
    world = World([node("one", cpu=9, gpu=8), node("two", cpu=9, gpu=2)])
    world.train("a", 1, 3, ["one", "two", "two"]).train("gang", 1, 1, [], gpu=8)
    found = world.why("gang", namespace="default", kind=TRAININGJOB)
    assert fixes(found) == [
        "suspend TrainingJob default/a, which ends 3 pods: then default/gang has 1 trainer, default/a 0 instead of 3"
    ]


@pytest.mark.parametrize(
    ("nodes", "low", "size"),
    [
        pytest.param(["n1"] * 3, 0, 2, id="its workers are on one node"),
        pytest.param(["n1", "n1", "n2"], 0, 0, id="on several nodes all of them have to go"),
        pytest.param(["n1", "n1", "n2"], 1, None, id="minReplicas keeps the one that counts"),
        pytest.param(["n2", "n1", "n1"], 1, None, id="which one minReplicas keeps is not known"),
    ],
)
def test_where_rays_autoscaler_chooses_who_ends_it_must_not_matter(nodes, low, size):
    has_two = "n2" in nodes
    world = World([node("n1", cpu=9, gpu=3 - has_two), node("n2", cpu=9, gpu=int(has_two))])
    world.ray("rl", {"gpu": nodes}, enableInTreeAutoscaling=True).ray("serve", {"gpu": [""]}, gpu=1 + has_two)
    world.clusters[Key("ml", "rl")]["spec"]["workerGroupSpecs"][0]["minReplicas"] = low
    change = world.why("serve").changes[0]
    assert (change.after if change.field is Field.MAX_REPLICAS else None) == size
    if size == 2:
        text = "lower maxReplicas of RayCluster ml/rl to 2: then ml/serve has 1 worker, ml/rl 2 instead of 3"
        assert messages.change(change) == text
        assert messages.command_of(change) == (
            "kubectl patch raycluster rl -n ml --type json -p "
            """'[{"op":"add","path":"/spec/workerGroupSpecs/0/maxReplicas","value":2}]'"""
        )


def reserved() -> World:
    """Three GPUs are free: the first gang in line, of another namespace, needs four, the second two."""
    world = World([node("n1", cpu=9, gpu=4)]).train("features", 1, 1, ["n1"])
    world.train("pose", 4, 4, [], namespace="a-team")
    return world.train("tokenizer", 2, 2, [], reason="CapacityReserved")


def test_the_job_that_capacity_is_reserved_for_is_named_to_the_caller():
    found = reserved().why("tokenizer", namespace="default", kind=TRAININGJOB)
    assert found.first.holder == "a-team/pose"
    assert "reserved for a-team/pose (first in line)" in found.first.message
    assert found.changes == (), "capacity for it is free"


def test_a_job_that_has_the_size_of_now_after_the_change_is_no_effect():
    """Without a reservation the other gang would start, were it not for the change."""
    config = SharingConfig(reservation_s=0)
    found = reserved().why("pose", namespace="a-team", kind=TRAININGJOB, config=config)
    assert [messages.change(each) for each in found.changes] == [
        "suspend TrainingJob default/features, which ends 1 pod: then a-team/pose has 4 trainers, default/features 0 instead of 1",
        "lower min-instance from 4 to 3: then a-team/pose has 3 trainers",
    ]


# --- nodes -----------------------------------------------------------------------------------------------------------


def test_more_nodes_like_the_largest_are_a_fix_that_takes_nothing_from_anybody():
    """Two pods of two GPUs each: one more node has capacity for both."""
    world = World([node("n1", cpu=9, gpu=1), node("n2", cpu=9, gpu=4)]).other("web", "n2", 4)
    world.ray("serve", {"gpu": [""] * 2}, gpu=2)
    (change,) = world.why("serve", has_nodes=True).changes
    assert messages.change(change) == "add 1 node like n2: then ml/serve has 2 workers"
    assert messages.command_of(change) == ""
    assert messages.NO_FIX in world.why("serve", has_nodes=True).notes


def test_as_few_nodes_are_named_as_do_and_who_gets_the_rest():
    world = World([node("n1", cpu=9, gpu=2)]).other("web", "n1", 2)
    world.ray("first", {"gpu": [""]}).train("gang", 4, 4, [])
    (change,) = world.why("gang", namespace="default", kind=TRAININGJOB, has_nodes=True).changes
    assert messages.change(change) == ("add 3 nodes like n1: then default/gang has 4 trainers, ml/first 1 instead of 0")


def test_nodes_that_would_not_do_are_not_named():
    world = World([node("n1", cpu=9, gpu=1, taints=[{"key": "a", "effect": "NoSchedule"}])])
    world.other("web", "n1").ray("serve", {"gpu": [""]})
    assert world.why("serve", has_nodes=True).changes == ()


def test_the_nodes_are_like_one_where_the_pods_may_run():
    """The largest has a taint; one like the other does."""
    tainted = [{"key": "a", "effect": "NoSchedule"}]
    world = World([node("n1", cpu=9, gpu=2), node("n2", cpu=9, gpu=8, taints=tainted)])
    world.other("web", "n1", 2).ray("serve", {"gpu": [""]})
    (change,) = world.why("serve", has_nodes=True).changes
    assert messages.change(change) == "add 1 node like n1: then ml/serve has 1 worker"


def test_everybody_whose_size_changes_is_named():
    """What the other pods of equal priority get of it, they get first."""
    world = World([node("n1", cpu=9, gpu=3)]).ray("waits", {"gpu": [""]})
    world.ray("rl", {"gpu": ["n1"] * 3}).ray("serve", {"gpu": [""]})
    assert fixes(world.why("serve")) == [
        "scale RayCluster ml/rl from 3 to 1: then ml/serve has 1 worker, ml/rl 1 instead of 3, ml/waits 1 instead of 0"
    ]

"""Victims of a scale-down, from the snapshot to the deleted pods: planner, patch plan, indices."""

from dataclasses import dataclass, replace
from typing import Any, Self

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import Delete
from raytide.api.capacity import capacity_node_from_object, capacity_pod_from_object
from raytide.api.config import JobConfig, SharingConfig
from raytide.api.sharing_record import SharingRecord, encode_record
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pod import job_pod_from_manifest
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.patch_plan import plan_patches
from raytide.fairshare.snapshot import SnapshotBuilder
from raytide.trainingjob.observed import observe
from raytide.trainingjob.plan import remove_trainers
from raytide.trainingjob.plan_context import build_context
from unit.fairshare.harness import EPOCH, job_manifest

pytestmark = pytest.mark.rule("FD:SH-B3")

Json = dict[str, Any]


@dataclass(frozen=True)
class Cluster:
    """Nodes, jobs and their trainers as objects of the API."""

    nodes: tuple[Json, ...] = ()
    jobs: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()

    def with_nodes(self, *names: str, cpu: int = 32, gpu: int = 0) -> Self:
        """More nodes; each has its name as label `name`."""
        status = {"allocatable": {"cpu": str(cpu), "pods": "110", **({constants.GPU: str(gpu)} if gpu else {})}}
        new = ({"metadata": {"name": name, "labels": {"name": name}}, "status": status} for name in names)
        return replace(self, nodes=(*self.nodes, *new))

    def with_job(self, name: str, floor: int, ceiling: int, on: tuple[str, ...] = (), **more: Any) -> Self:
        """One more job, whose trainers run on these nodes; one without trainers has not begun."""
        job = job_manifest(name, floor, ceiling, **more)
        record = SharingRecord(f"uid-{name}", len(on), is_admitted=True, admitted_at=EPOCH)
        job["metadata"] |= {"uid": f"uid-{name}", "generation": 1}
        if on:
            job["metadata"]["annotations"] = {constants.SHARING_ANNOTATION: encode_record(record)}
            job["spec"]["trainer"]["replicas"] = len(on)
        pods = (_pod(job, index, node) for index, node in enumerate(on))
        return replace(self, jobs=(*self.jobs, job), pods=(*self.pods, *pods))

    def victims(self) -> dict[str, str]:
        """Name -> node of the pods that the controllers of the jobs delete after one sharing pass."""
        jobs = [TrainingJob.parse(job) for job in self.jobs]
        pools = SnapshotBuilder(SharingConfig())
        pool = pools.build(
            jobs, map(capacity_pod_from_object, self.pods), map(capacity_node_from_object, self.nodes), now=EPOCH
        )
        plan = plan_patches(jobs, pool, allocate(pool), EPOCH, trainers=pools.trainers)
        patches = {patch.job.key.name: patch.patch("1") for patch in plan.patches}
        node_of = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in self.pods}
        return {
            name: node_of[name]
            for job in self.jobs
            for name in self._deleted(job, patches.get(job["metadata"]["name"], {}))
        }

    def _deleted(self, job: Json, patch: Json) -> list[str]:
        trainer = {**job["spec"]["trainer"], **patch.get("spec", {}).get("trainer", {})}
        metadata = {**job["metadata"], **{key: patch["metadata"][key] for key in ("annotations",) if patch}}
        after = TrainingJob.parse({**job, "metadata": metadata, "spec": {**job["spec"], "trainer": trainer}})
        name = job["metadata"]["name"]
        own = [
            job_pod_from_manifest(pod) for pod in self.pods if pod["metadata"]["labels"][constants.JOB_LABEL] == name
        ]
        context = build_context(after, observe(after.metadata.uid, pods=own, seen_at=EPOCH), JobConfig())
        return [action.name for action in remove_trainers(context).actions if isinstance(action, Delete)]


def _pod(job: Json, index: int, node: str) -> Json:
    name = job["metadata"]["name"]
    labels = {constants.JOB_LABEL: name, constants.ROLE_LABEL: "trainer", constants.INDEX_LABEL: str(index)}
    owner = {"kind": "TrainingJob", "name": name, "uid": f"uid-{name}", "controller": True}
    return {
        "metadata": {
            "namespace": "default",
            "name": f"{name}-trainer-{index}",
            "uid": f"uid-{name}-{index}",
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "trainer", "resources": job["spec"]["trainer"]["resources"]}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
        },
    }


def round_robin(count: int, *nodes: str) -> tuple[str, ...]:
    """A node for each of so many trainers, in turn."""
    return tuple(nodes[index % len(nodes)] for index in range(count))


FIVE = ("n0", "n1", "n2", "n3", "n4")


def test_a_trainer_of_eight_gpus_takes_the_eight_of_one_node_and_no_more():
    """By index 36 of the 40 were removed."""
    cluster = Cluster().with_nodes(*FIVE, gpu=8).with_job("many", 4, 40, round_robin(40, *FIVE), gpu=1)
    victims = cluster.with_job("big", 1, 1, gpu=8).victims()
    assert len(victims) == 8
    assert len(set(victims.values())) == 1
    assert "n0" not in victims.values(), "trainer 0 is there"


def test_several_jobs_release_the_gpus_of_one_node_together():
    """By index 20 of the 32 were removed."""
    cluster = Cluster().with_nodes(*FIVE[:4], gpu=8)
    for name in ("a", "b", "c", "d"):
        cluster = cluster.with_job(name, 1, 8, round_robin(8, *FIVE[:4]), gpu=1)
    victims = cluster.with_job("big", 1, 1, gpu=8).victims()
    assert len(victims) == 8
    assert len(set(victims.values())) == 1


def test_a_claimant_that_may_use_one_node_takes_the_trainer_there():
    """By index 19 of the 20 were removed for one CPU on the node of trainer 1."""
    names = tuple(f"n{i}" for i in range(20))
    cluster = Cluster().with_nodes(*names, cpu=1).with_job("many", 1, 20, names)
    cluster = cluster.with_job("pinned", 1, 1, startPolicy="Gang")
    cluster.jobs[-1]["spec"]["trainer"]["nodeSelector"] = {"name": "n1"}
    assert cluster.victims() == {"many-trainer-1": "n1"}


def test_no_trainer_is_removed_for_a_claimant_that_may_use_only_the_node_of_trainer_0():
    cluster = Cluster().with_nodes("n0", "n1", "n2", cpu=1).with_job("many", 1, 3, ("n0", "n1", "n2"))
    cluster = cluster.with_job("pinned", 1, 1, startPolicy="Gang")
    cluster.jobs[-1]["spec"]["trainer"]["nodeSelector"] = {"name": "n0"}
    assert cluster.victims() == {}


def test_another_trainer_on_the_node_of_trainer_0_is_removed_instead():
    cluster = Cluster().with_nodes("n0", cpu=2).with_nodes("n1", cpu=1).with_job("many", 1, 3, ("n0", "n0", "n1"))
    cluster = cluster.with_job("pinned", 1, 1, startPolicy="Gang")
    cluster.jobs[-1]["spec"]["trainer"]["nodeSelector"] = {"name": "n0"}
    assert cluster.victims() == {"many-trainer-1": "n0"}

"""Plan, victims and the job's controller together: pods without a node, and permanently failed trainers."""

import pytest

from raytide.api.capacity import capacity_node_from_object, capacity_pod_from_object
from raytide.api.config import SharingConfig
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import SHARING_ANNOTATION
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.snapshot import SnapshotBuilder
from unit.fairshare.harness import EPOCH
from unit.fairshare.test_victims import Cluster
from unit.fairshare.test_with_trainingjob_controller import BothControllers

PENDING = {"phase": "Pending", "conditions": []}


# --- pods without a node ---------------------------------------------------------------------------------------------------


def with_a_pending_trainer() -> Cluster:
    """Three trainers run on n0, with capacity for a fourth one that kube-scheduler has not bound yet; "pinned" needs that capacity."""
    cluster = Cluster().with_nodes("n0", cpu=4).with_nodes("n1", cpu=1)
    cluster = cluster.with_job("many", 1, 4, ("n0", "n0", "n0", ""))
    cluster.pods[3]["status"] = PENDING
    cluster = cluster.with_job("fills-n1", 1, 1, ("n1",)).with_job("pinned", 1, 1, startPolicy="Gang")
    cluster.jobs[-1]["spec"]["trainer"]["nodeSelector"] = {"name": "n0"}
    return cluster


@pytest.mark.rule("FD:SH-B3", "TJ:7.5")
def test_the_pod_without_a_node_leaves_and_not_a_running_one():
    assert with_a_pending_trainer().victims() == {"many-trainer-3": ""}


@pytest.mark.rule("FD:SH-B3")
def test_a_resize_counts_on_nodes_only_pods_that_are_there():
    cluster = with_a_pending_trainer()
    pools = SnapshotBuilder(SharingConfig())
    pool = pools.build(
        [TrainingJob.parse(one) for one in cluster.jobs],
        map(capacity_pod_from_object, cluster.pods),
        map(capacity_node_from_object, cluster.nodes),
        now=EPOCH,
    )
    (shrink,) = [one for one in allocate(pool).resizes if one.after < one.before]
    assert (shrink.id.name, shrink.before, shrink.after, dict(shrink.nodes)) == ("many", 4, 3, {})


# --- trainers that failed permanently -----------------------------------------------------------------------------------------


@pytest.mark.rule("FD:SH-B3", "TJ:3.12")
def test_a_job_with_a_failed_trainer_releases_as_many_trainers_as_planned():
    """Size 4, trainer 3 failed for good, three run. With `replicas: 3` the job's controller would keep all three."""
    cluster = Cluster().with_nodes("n0", cpu=3)
    cluster = cluster.with_job("many", 1, 4, ("n0", "n0", "n0"), fault_tolerant=True, framework="generic")
    many = cluster.jobs[0]
    many["spec"]["trainer"]["replicas"] = 4
    many["status"] = {"trainer": {"failedIndexes": "3"}}
    record = many["metadata"]["annotations"]
    record[SHARING_ANNOTATION] = record[SHARING_ANNOTATION].replace('"replicas":3', '"replicas":4')
    cluster = cluster.with_job("new", 1, 1, startPolicy="Gang")
    assert cluster.victims() == {"many-trainer-2": "n0"}


@pytest.mark.rule("TJ:3.12")
@pytest.mark.looptime
async def test_both_controllers_agree_about_a_job_with_a_failed_trainer():
    stage = BothControllers()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("many", 1, 4, framework="generic", fault_tolerant=True, restartPolicy="Never")
        await stage.until("all four run", lambda: "many-trainer-3" in stage.placed("many"))
        path = "/api/v1/namespaces/default/pods/many-trainer-3/status"
        ended = {"name": "trainer", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        status = {"phase": "Failed", "containerStatuses": [ended]}
        stage.handle("PATCH", path, {"status": status}, "application/merge-patch+json")
        await stage.until("it is given up", lambda: stage.status("many").get("trainer", {}).get("failedIndexes") == "3")
        views = [capacity_pod_from_object(pod) for pod in stage._pods()]
        used = sum(view.requests["cpu"] for view in views if view.node and not view.is_finished)
        stage.add_pod("web", f"{8000 - used}m")
        stage.add_job("new", 1, 1, startPolicy="Gang")
        await stage.until("the new one starts", lambda: len(stage.placed("new")) == 1, within_s=60)

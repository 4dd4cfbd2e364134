"""Warnings about a RayCluster that is valid."""

import pytest

from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from support.builders import group, parsed, raycluster


def events_of(cluster):
    todo = plan(cluster, Observed(), ClusterConfig(), lambda prefix: f"{prefix}aaaaa")
    return [(event.event_type, event.reason, event.message) for event in todo.events]


@pytest.mark.rule("FD:RC-B13")
@pytest.mark.parametrize(
    ("groups", "note"),
    [
        pytest.param(
            [group(replicas=9, high=5)],
            "spec.workerGroupSpecs[0].replicas is 9, above maxReplicas: group cpu is scaled to 5",
            id="too many",
        ),
        pytest.param(
            [group(), group("gpu", replicas=1, low=2)],
            "spec.workerGroupSpecs[1].replicas is 1, below minReplicas: group gpu is scaled to 2",
            id="too few",
        ),
        pytest.param(
            [group(str(i), replicas=9, high=5) for i in range(100)],
            "spec.workerGroupSpecs[0].replicas is 9, above maxReplicas: group 0 is scaled to 5; the same applies to 99 more groups",
            id="a hundred groups are one event",
        ),
    ],
)
def test_replicas_outside_their_bounds(groups, note):
    assert events_of(parsed(*groups)) == [("Warning", "ReplicasClamped", note)]


@pytest.mark.rule("FD:RC-B13")
@pytest.mark.parametrize(
    "counts",
    [
        pytest.param({"replicas": 5, "high": 5}, id="within the bounds"),
        pytest.param({"replicas": 0, "low": 2}, id="none, the default of the CRD"),
        pytest.param({"replicas": None, "low": 2}, id="absent"),
    ],
)
def test_replicas_without_a_warning(counts):
    assert events_of(parsed(group(**counts))) == []


@pytest.mark.rule("FD:RC-B3")
def test_an_unknown_value_of_the_allow_insecure_annotation_is_a_warning():
    obj = raycluster()
    obj["metadata"]["annotations"] = {"raytide.io/allow-insecure": "authOptions,tls" + "x" * 500}
    ((kind, reason, note),) = events_of(RayCluster.parse(obj))
    assert (kind, reason) == ("Warning", "InvalidRayClusterSpec")
    assert note.startswith("annotation raytide.io/allow-insecure has the unknown value 'tlsxxx")
    assert "authOptions, tlsOptions, networkPolicy" in note
    assert len(note) < 300


@pytest.mark.rule("FD:RC-B13", "RC:V-65")
def test_a_status_that_contradicts_itself_is_reported_and_stops_everything():
    true = {"status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{**true, "type": f"RayCluster{what}"} for what in ("Suspending", "Suspended")]
    cluster = parsed(status={"conditions": conditions})
    todo = plan(cluster, Observed(), ClusterConfig(), lambda prefix: f"{prefix}aaaaa")
    assert [fault.rule for fault in todo.violations] == ["V-65"]
    assert todo.actions == ()
    ((kind, reason, note),) = events_of(cluster)
    assert (kind, reason) == ("Warning", "InvalidRayClusterStatus")
    assert "RayClusterSuspending and RayClusterSuspended are both True; the suspension is completed" in note

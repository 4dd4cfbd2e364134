"""unsupported(): no field that a user sets is silently ignored."""

import pytest

from raytide.api import constants
from raytide.api.raycluster import RayCluster
from raytide.raycluster.validation import unsupported
from support.builders import group, raycluster

FIELDS = {
    "spec.authOptions.mode": {"authOptions": {"mode": "token"}},
    "spec.tlsOptions.enabled": {"tlsOptions": {"enabled": True}},
    "spec.networkPolicy": {"networkPolicy": {}},
    "spec.historyServerOptions": {"historyServerOptions": {}},
    "spec.headGroupSpec.enableIngress": {"headGroupSpec": {"enableIngress": True}},
    "spec.headGroupSpec.ingressOptions": {"headGroupSpec": {"ingressOptions": {"path": "/ray"}}},
    "spec.upgradeStrategy.type": {"upgradeStrategy": {"type": "Recreate"}},
}
OFF = {
    "autoscaling off": {"enableInTreeAutoscaling": False},
    "autoscaling, which is built": {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v2"}},
    "what the autoscaler reads": {"workerGroupSpecs": [group("a", idleTimeoutSeconds=0, priority=5)]},
    "token authentication, which is built": {"authOptions": {"mode": "token", "secretName": "tok"}},
    "authentication disabled": {"authOptions": {"mode": "disabled", "secretName": "tok"}},
    "TLS off": {"tlsOptions": {"enabled": False}},
    "no ingress": {"headGroupSpec": {"enableIngress": False}},
    "suspended, which is built": {"suspend": True},
    "the state of the GCS in Redis, which is built": {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}},
    "the state of the GCS in RocksDB, which is built": {"gcsFaultToleranceOptions": {"backend": "rocksdb"}},
    "upgrade None": {"upgradeStrategy": {"type": "None"}},
    "groups of several hosts, which are built": {"workerGroupSpecs": [group("a", numOfHosts=2)]},
    "the priority every group has by default": {"workerGroupSpecs": [group("a", priority=0)]},
    "a suspended group, which is built": {"workerGroupSpecs": [group("a", suspend=True)]},
}


ACCEPTED = {constants.ALLOW_INSECURE_ANNOTATION: "authOptions,tlsOptions,networkPolicy"}
"""Where protection may be missing; elsewhere it is no matter of `Unsupported` (test_protection.py)."""


def named(spec, annotations=None):
    obj = raycluster(**spec)
    obj["metadata"]["annotations"] = annotations or {}
    return [entry.field for entry in unsupported(RayCluster.parse(obj))]


@pytest.mark.parametrize(("field", "spec"), FIELDS.items(), ids=FIELDS)
def test_named(field, spec):
    assert named(spec, ACCEPTED) == [field]


@pytest.mark.parametrize("spec", OFF.values(), ids=OFF)
def test_what_is_switched_off_is_not_named(spec):
    assert named(spec) == []


@pytest.mark.parametrize(
    ("annotation", "on", "off"),
    [(constants.ENABLE_SERVE_SERVICE_ANNOTATION, "true", "false"), (constants.IN_PLACE_RESIZE_ANNOTATION, "abc", "")],
)
def test_annotations_are_named(annotation, on, off):
    assert named({}, {annotation: on}) == [f"metadata.annotations[{annotation}]"]
    assert named({}, {annotation: off}) == []


@pytest.mark.rule("FD:RC-B13")
@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("labels", "ray.io/gang-scheduling-enabled"),
        ("labels", "ray.io/priority-class-name"),
        ("labels", "volcano.sh/queue-name"),
        ("labels", "volcano.sh/network-topology-mode"),
        ("labels", "volcano.sh/network-topology-highest-tier-allowed"),
        ("labels", "kai.scheduler/queue"),
        ("labels", "yunikorn.apache.org/queue"),
        ("annotations", "yunikorn.apache.org/task-groups"),
    ],
)
def test_what_batch_schedulers_would_read_is_named(place, name):
    obj = raycluster()
    obj["metadata"][place] = {name: "x", "kueue.x-k8s.io/queue-name": "works"}
    assert [entry.field for entry in unsupported(RayCluster.parse(obj))] == [f"metadata.{place}[{name}]"]


def test_every_entry_states_the_consequence():
    obj = raycluster(tlsOptions={"enabled": True}, upgradeStrategy={"type": "Recreate"})
    obj["metadata"]["annotations"] = ACCEPTED
    entries = unsupported(RayCluster.parse(obj))
    assert [str(entry) for entry in entries] == [
        "spec.tlsOptions.enabled: Ray's traffic is not encrypted",
        "spec.upgradeStrategy.type: a changed template applies to new pods only",
    ]

"""unsupported(): nothing a user asks for is ignored in silence."""

import pytest

from raytide.api import names
from raytide.api.raycluster import RayCluster
from raytide.raycluster.validation import unsupported

from builders import group, raycluster

FIELDS = {
    "spec.enableInTreeAutoscaling": {"enableInTreeAutoscaling": True},
    "spec.autoscalerOptions": {"autoscalerOptions": {}},
    "spec.gcsFaultToleranceOptions": {"gcsFaultToleranceOptions": {}},
    "spec.authOptions.mode": {"authOptions": {"mode": "token"}},
    "spec.tlsOptions.enabled": {"tlsOptions": {"enabled": True}},
    "spec.networkPolicy": {"networkPolicy": {}},
    "spec.historyServerOptions": {"historyServerOptions": {}},
    "spec.headGroupSpec.enableIngress": {"headGroupSpec": {"enableIngress": True}},
    "spec.suspend": {"suspend": True},
    "spec.upgradeStrategy.type": {"upgradeStrategy": {"type": "Recreate"}},
    "spec.workerGroupSpecs[1].numOfHosts": {"workerGroupSpecs": [group("a"), group("b", numOfHosts=2)]},
}
OFF = {
    "autoscaling off": {"enableInTreeAutoscaling": False},
    "authentication disabled": {"authOptions": {"mode": "disabled"}},
    "TLS off": {"tlsOptions": {"enabled": False}},
    "no ingress": {"headGroupSpec": {"enableIngress": False}},
    "not suspended": {"suspend": False},
    "upgrade None": {"upgradeStrategy": {"type": "None"}},
    "one host": {"workerGroupSpecs": [group("a", numOfHosts=1)]},
    "a suspended group, which is built": {"workerGroupSpecs": [group("a", suspend=True)]},
}


def named(spec, annotations=None):
    obj = raycluster(**spec)
    obj["metadata"]["annotations"] = annotations or {}
    return [entry.field for entry in unsupported(RayCluster.parse(obj))]


@pytest.mark.parametrize(("field", "spec"), FIELDS.items(), ids=FIELDS)
def test_named(field, spec):
    assert named(spec) == [field]


@pytest.mark.parametrize("spec", OFF.values(), ids=OFF)
def test_what_is_switched_off_is_not_named(spec):
    assert named(spec) == []


@pytest.mark.parametrize("annotation", [names.FT_ENABLED_ANNOTATION, names.ENABLE_SERVE_SERVICE_ANNOTATION])
def test_annotations_are_named(annotation):
    assert named({}, {annotation: "true"}) == [f"metadata.annotations[{annotation}]"]
    assert named({}, {annotation: "false"}) == []


def test_every_entry_says_what_happens_meanwhile():
    entries = unsupported(RayCluster.parse(raycluster(group(numOfHosts=4), suspend=True)))
    assert [str(entry) for entry in entries] == [
        "spec.suspend: no pod is created; pods that run keep running",
        "spec.workerGroupSpecs[0].numOfHosts: group 'cpu' is left as it is",
    ]

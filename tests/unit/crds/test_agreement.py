"""The CRD and `violations` agree about every RayCluster in the recordings, except the differences listed here."""

import pytest
from pydantic import ValidationError

from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.validation import violations
from support.admission_cases import expanded, read

RAYCLUSTER = read("raycluster.json")
CREATES = [case for case in RAYCLUSTER["cases"] if "before" not in case]

ONLY_THE_CRD = {
    # Core types are opaque to the operator (D13); the API server rejects the pod, if the CRD were not there.
    "a quantity with a wrong unit",
    "a quantity as a fraction",
    "two variables of one name",
    # The pods of such a group could never be created: its name becomes a label's value.
    "an empty group name",
    "a group name of 64 characters",
    "a group name with a space",
    # KubeRay clamps or ignores these when they are stored; new ones are rejected.
    "replicas below zero",
    "numOfHosts below zero",
    "replicas beyond 32 bits",
    # Enums, and who manages the object.
    'a wrong authOptions: {"mode": "open"}',
    'a wrong autoscalerOptions: {"version": "v3"}',
    'a wrong autoscalerOptions: {"upscalingMode": "Fast"}',
    'a wrong managedBy: "me"',
    # Another controller writes the gates, and the operator never reads them: for the sidecar each entry is a gate.
    "two scale gates of one type",
    "a scale gate without a type",
    "a scale gate whose type is no label key",
}
ONLY_VIOLATIONS = {
    # The object as written; the CRD sets defaults of the bounds before they are validated.
    "defaults of a group",
    # Feature gates are the operator's, the CRD cannot know them.
    "networkPolicy gets its mode",
    "rocksdb with a size",
    # Fault tolerance by annotation: rules cannot read annotations.
    "the address of redis without options may be the annotation's",
}


def faults_of(cluster):
    try:
        return violations(RayCluster.parse(cluster), ClusterConfig())
    except ValidationError as error:
        return error.errors()


@pytest.mark.parametrize("case", CREATES, ids=lambda case: case["says"])
def test_the_crd_and_the_operator_agree(case):
    by_crd = bool(case["answer"]["errors"])
    by_operator = bool(faults_of(expanded(RAYCLUSTER, case)["object"]))
    expected = (by_crd and case["says"] not in ONLY_THE_CRD) or case["says"] in ONLY_VIOLATIONS
    assert by_operator == expected


def test_the_differences_are_still_there():
    messages = {case["says"] for case in CREATES}
    assert messages >= ONLY_THE_CRD | ONLY_VIOLATIONS

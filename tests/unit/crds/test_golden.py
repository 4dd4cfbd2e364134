"""Every recorded spec is accepted or rejected as KubeRay did, by the CRD or by `violations` (tests/golden)."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.validation import violations
from raytide_sandbox.apiserver.schema import Structural, compile_schema

TESTS = Path(__file__).parents[2]
GOLDEN = TESTS / "golden"
CRD = TESTS.parent / "crds/ray.io_rayclusters.yaml"
SPECS = sorted((GOLDEN / "specs").glob("*.yaml"))
STRICTER = {"34"}
"""KubeRay accepts two groups of one name and lets them share pods; we reject them (issue C)."""


@pytest.fixture(scope="module")
def structural() -> Structural:
    versions = yaml.load(CRD.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    return compile_schema(versions[0]["schema"]["openAPIV3Schema"])


def recorded_as_invalid(path):
    events = json.loads((GOLDEN / "kuberay" / f"{path.stem}.json").read_text())["events"]
    return any(reason.startswith("Invalid") for _, reason, _ in events)


def cluster_of(path):
    (cluster,) = (doc for doc in yaml.safe_load_all(path.read_text()) if doc["kind"] == "RayCluster")
    return cluster


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_accepted_or_rejected_as_recorded(structural, path):
    cluster = cluster_of(path)
    structural.default(cluster)
    assert structural.prune(copy.deepcopy(cluster)) == []
    by_crd = structural.violations(cluster)
    by_operator = violations(RayCluster.parse(cluster), ClusterConfig())
    is_rejected = bool(by_crd or by_operator)
    assert is_rejected == (recorded_as_invalid(path) or path.stem[:2] in STRICTER)


@pytest.mark.parametrize("number", ["34", "35", "36", "39", "40"])
def test_the_api_server_rejects_without_any_webhook(structural, number):
    (path,) = (path for path in SPECS if path.stem.startswith(number))
    cluster = cluster_of(path)
    structural.default(cluster)
    assert len(structural.violations(cluster)) == 1


def test_all_forty_are_there():
    assert len(SPECS) == 40
    assert sum(recorded_as_invalid(path) for path in SPECS) == 5

"""Every sample works as it is: the CRD takes it whole, and the operator finds nothing wrong or unfinished in it."""

from pathlib import Path

import pytest
import yaml

from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.validation import unsupported, violations, warnings
from raytide.sandbox.apiserver.schema import compile_schema

ROOT = Path(__file__).parents[3]
CRD = ROOT / "operator/src/raytide/crds/ray.io_rayclusters.yaml"
SAMPLES = sorted((ROOT / "samples").glob("raycluster*.yaml"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_sound(path):
    versions = yaml.load(CRD.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    structural = compile_schema(versions[0]["schema"]["openAPIV3Schema"])
    obj = yaml.safe_load(path.read_text())
    structural.default(obj)
    assert structural.prune(obj) == []
    assert structural.violations(obj) == []
    cluster = RayCluster.parse(obj)
    assert (violations(cluster, ClusterConfig()), warnings(cluster), unsupported(cluster)) == ((), (), ())


def test_there_are_samples():
    assert len(SAMPLES) >= 2

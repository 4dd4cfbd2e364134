"""Samples, and RayClusters of pages, are valid: the CRD prunes no field, the operator has no violations, warnings or unsupported fields."""

import re
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.api.trainingjob import TrainingJob
from raytide.raycluster.validation import unsupported, violations, warnings
from raytide.trainingjob import validation as of_jobs
from raytide_sandbox.apiserver.schema import compile_schema
from support.training_builders import SEED

ROOT = Path(__file__).parents[3]
CRDS = ROOT / "crds"
CRD = CRDS / "ray.io_rayclusters.yaml"
JOB_CRD = CRDS / "paddlepaddle.org_trainingjobs.yaml"
SAMPLES = sorted((ROOT / "samples").glob("raycluster*.yaml"))
JOB_SAMPLES = sorted((ROOT / "samples").glob("trainingjob*.yaml"))
YAML_BLOCK = re.compile(r"^ *```yaml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
OF_SAMPLES = [pytest.param(yaml.safe_load(path.read_text()), id=path.stem) for path in SAMPLES]
OF_PAGES = [
    pytest.param(obj, id=f"{page.name} {obj['metadata']['name']}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for block in YAML_BLOCK.findall(page.read_text())
    for obj in yaml.safe_load_all(dedent(block))
    if isinstance(obj, dict) and obj.get("kind") == "RayCluster"
]


@pytest.mark.parametrize("obj", [*OF_SAMPLES, *OF_PAGES])
def test_a_raycluster_is_valid_without_warnings(obj):
    versions = yaml.load(CRD.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    structural = compile_schema(versions[0]["schema"]["openAPIV3Schema"])
    structural.default(obj)
    assert structural.prune(obj) == []
    assert structural.violations(obj) == []
    cluster = RayCluster.parse(obj)
    assert (violations(cluster, ClusterConfig()), warnings(cluster), unsupported(cluster)) == ((), (), ())


@pytest.mark.parametrize("path", JOB_SAMPLES, ids=lambda path: path.stem)
def test_a_trainingjob_sample_is_valid_without_warnings(path):
    (version,) = yaml.load(JOB_CRD.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    structural = compile_schema(version["schema"]["openAPIV3Schema"])
    jobs = [obj for obj in yaml.safe_load_all(path.read_text()) if obj["kind"] == "TrainingJob"]
    assert jobs
    for obj in jobs:
        structural.default(obj)
        assert structural.prune(obj) == []
        assert structural.violations(obj) == []
        job = TrainingJob.parse(obj)
        assert (of_jobs.violations(job), of_jobs.warnings(job), of_jobs.unsupported(job)) == ((), (), ())


def test_the_sample_of_the_design_is_what_other_tests_take_for_it():
    assert yaml.safe_load((ROOT / "samples" / "trainingjob-seed.yaml").read_text()) == SEED


def test_there_are_samples():
    assert len(SAMPLES) >= 2
    assert OF_PAGES
    assert ROOT / "samples" / "trainingjob-seed.yaml" in JOB_SAMPLES

"""The embedded API server responds as the code of a real one did (tests/golden/admission)."""

import copy
from pathlib import Path

import pytest
import yaml

from raytide_sandbox.apiserver.schema import Structural, compile_schema
from support.admission_cases import digest, expanded, read

CRD = Path(__file__).parents[5] / "crds/ray.io_rayclusters.yaml"
SCHEMA, RAYCLUSTER = read("schema.json"), read("raycluster.json")


@pytest.fixture(scope="module")
def thing() -> Structural:
    return compile_schema(SCHEMA["schema"])


@pytest.fixture(scope="module")
def raycluster() -> Structural:
    versions = yaml.load(CRD.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    return compile_schema(versions[0]["schema"]["openAPIV3Schema"])


def stored(structural, obj):
    """The object as the server keeps it, and the unknown fields."""
    obj = copy.deepcopy(obj)
    structural.default(obj)
    return obj, structural.prune(obj)


def answer(structural, write):
    obj, unknown = stored(structural, write["object"])
    old = stored(structural, write["before"])[0] if write["before"] else None
    errors = sorted(str(fault) for fault in structural.violations(obj, old, is_status=write["is_status"]))
    return {"object": obj, "unknown": unknown, "errors": errors}


@pytest.mark.parametrize("case", SCHEMA["cases"], ids=lambda case: case["says"])
def test_every_keyword_is_answered_as_recorded(thing, case):
    assert answer(thing, expanded(SCHEMA, case)) == case["answer"]


@pytest.mark.rule("RC:V-1", "RC:V-2", "RC:V-9", "RC:V-10", "RC:V-11", "RC:V-14", "RC:V-15")
@pytest.mark.parametrize("case", RAYCLUSTER["cases"], ids=lambda case: case["says"])
def test_a_raycluster_is_answered_as_recorded(raycluster, case):
    given = answer(raycluster, expanded(RAYCLUSTER, case))
    assert {"unknown": given["unknown"], "errors": given["errors"]} == case["answer"]


def test_the_answers_were_recorded_with_this_crd():
    """The real server also accepted the CRD: its rules parse, and their cost is within the budget."""
    crd = yaml.load(CRD.read_text(), Loader=yaml.CSafeLoader)
    assert RAYCLUSTER["crd"] == digest(crd), "run tests/golden/admission/recorder/record.py"


def test_what_is_stored_stays_editable(raycluster):
    """The recordings themselves promise it: no write on top of a broken object is rejected unless it breaks more."""
    about_stored = [case for case in RAYCLUSTER["cases"] if case["says"].startswith("stored with")]
    rejected = [case["says"] for case in about_stored if case["answer"]["errors"]]
    assert len(about_stored) > 60
    assert rejected == ["stored with min above max: a second broken group is rejected"]

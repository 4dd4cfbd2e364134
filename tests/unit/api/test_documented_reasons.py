"""docs/conditions.md and docs/events.md have the reasons in the code, and those that KubeRay writes.

tests/simulation/conftest.py compares each condition and each event of a simulated run with the same pages.
"""

import json
import re
from pathlib import Path

import pytest

from raytide.api import constants
from raytide.api import trainingjob_constants as training
from raytide.api.autoscaler_decision import LIMIT_REASONS
from raytide.diagnosis import catalogue

ROOT = Path(__file__).resolve().parents[3]
CONDITIONS, EVENTS = ((ROOT / "docs" / name).read_text() for name in ("conditions.md", "events.md"))
REASONS_ON_PAGES = set(re.findall(r"^(?:\| [\w, ]+ \| `|### )(\w+)", CONDITIONS + EVENTS, re.MULTILINE))
CAMEL_CASE = re.compile(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]*)*")
NO_REASON = {  # constants spelled like reasons
    constants.AUTOSCALER_FIELD_MANAGER,
    *(value for name, value in vars(training).items() if name.startswith("PHASE_")),
}
NOT_POSTED = {"CreatedIngress"}
"""Events of KubeRay about what Raytide does not build (docs/compatibility.md)."""
OF_NO_CONDITION = {value for name, value in vars(catalogue).items() if name.isupper() and isinstance(value, str)}
"""Reasons of `raytide why` alone."""


@pytest.mark.parametrize("module", [constants, training])
def test_the_pages_have_every_constant_that_is_spelled_like_a_reason(module):
    values = {value for value in vars(module).values() if isinstance(value, str) and CAMEL_CASE.fullmatch(value)}
    assert len(values) > 20
    assert values - NO_REASON - REASONS_ON_PAGES == set()


def test_the_pages_have_every_reason_of_the_autoscaler_and_every_reason_with_a_remedy():
    assert len(OF_NO_CONDITION) > 5
    assert {*map(str, LIMIT_REASONS), *map(str, catalogue.CATALOGUE)} - OF_NO_CONDITION - REASONS_ON_PAGES == set()


def test_every_reason_that_kuberay_recorded_is_on_the_pages_or_listed_as_a_difference():
    found = set()
    for path in sorted((ROOT / "tests/golden/kuberay").glob("*.json")):
        recording = json.loads(path.read_text())
        found |= {reason for _, reason, about in recording["events"] if about == "RayCluster"}
        found |= set(re.findall(r'"reason": "(\w+)", "status"', json.dumps(recording["status"], sort_keys=True)))
    assert len(found) > 3
    assert found - REASONS_ON_PAGES - NOT_POSTED == set()

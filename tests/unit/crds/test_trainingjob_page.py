"""docs/compatibility.md lists every field of a TrainingJob, and interprets every row of TJ §3."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
(_, SECTION) = (ROOT / "docs/compatibility.md").read_text().split("\n## TrainingJob\n")
FIELDS, READINGS, _ = SECTION.split("\n### ")[1:]
CRD = yaml.load((ROOT / "crds" / "paddlepaddle.org_trainingjobs.yaml").read_text(), Loader=yaml.CSafeLoader)
SPEC = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


@pytest.mark.parametrize("place", ["", "annotations", "scaling", "master", "pserver", "trainer"])
def test_every_field_is_in_the_table(place):
    names = SPEC[place]["properties"] if place else SPEC
    assert [name for name in names if not re.search(rf"[`.]{re.escape(name)}`", FIELDS)] == []


def test_what_the_table_calls_unsupported_is_what_has_no_effect():
    rows = [row for row in FIELDS.splitlines() if "| `Unsupported` |" in row]
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[1])}
    silent = {
        name
        for properties in (SPEC, *(SPEC[place]["properties"] for place in ("annotations", "master")))
        for name, field in properties.items()
        if field.get("description", "").startswith("Without effect")
    }
    of_annotations = set(SPEC["annotations"]["properties"]) - {"walltime"}
    assert named - {"annotations", "spec"} == silent | of_annotations


def test_every_row_of_the_contradictions_has_a_reading():
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", READINGS, flags=re.MULTILINE)]
    assert numbers == list(range(1, 23))

"""docs/compatibility.md lists exactly the existing fields, flags, variables and gates."""

import re
from pathlib import Path

import pytest

from raytide.api.config import DEFAULT_FEATURE_GATES, OTHER_FEATURE_GATES
from raytide.cli.operator import UNSUPPORTED_FLAGS
from raytide.manager.settings import VARIABLES_WITHOUT_EFFECT, Settings
from unit.raycluster.test_every_field import FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "compatibility.md").read_text()


def section(title):
    (_, text) = PAGE.split(f"\n## {title}\n")
    return text.split("\n## ")[0]


@pytest.mark.parametrize("field", sorted({path.split(".")[0].removesuffix("[]") for path in FIELDS}))
def test_every_field_of_spec(field):
    assert f"`{field}" in section("Fields of `spec`")


@pytest.mark.parametrize("place", ["headGroupSpec", "workerGroupSpecs[]", "authOptions"])
def test_every_field_of_a_group(place):
    names = {path.removeprefix(f"{place}.").split(".")[0] for path in FIELDS if path.startswith(f"{place}.")}
    text = section("Fields of `spec`")
    assert {name for name in names if f".{name}" not in text} - {"mode"} == set()


def test_every_flag():
    assert [flag for flag in UNSUPPORTED_FLAGS if f"`{flag}`" not in section("Flags of the operator")] == []


def test_every_variable_and_gate():
    ours = [str(field.validation_alias) for field in Settings.model_fields.values()]
    kuberays = [name for name in ours if not name.startswith(("RAYTIDE_", "POD_"))]
    text = section("Environment variables of the operator")
    assert [name for name in (*kuberays, *VARIABLES_WITHOUT_EFFECT) if f"`{name}`" not in text] == []
    named = set(re.findall(r"`([A-Z]\w+)`", section("Feature gates").split("| State |")[1]))
    assert named - {"Unsupported"} == DEFAULT_FEATURE_GATES | OTHER_FEATURE_GATES

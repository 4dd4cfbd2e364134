"""docs/migrating.md names everything that Raytide leaves for the way back to KubeRay, and the user guide every reason."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from raytide.api import constants
from raytide.api.pod_failure import Cause
from raytide.autoscaler.scaling import limit_reasons
from raytide.autoscaler.state.group_availability import IN_BACKOFF, Stuck
from raytide.autoscaler.state.pod_startup import Unready

DOCS = Path(__file__).parents[3] / "docs"
GUIDE, MIGRATING = DOCS / "user-guide.md", DOCS / "migrating.md"


@pytest.mark.rule("FD:RC-B12")
def test_the_migration_back_to_kuberay_names_the_annotation_of_the_sidecar():
    (_, text) = MIGRATING.read_text().split("\n## The way back\n")
    way_back = text.split("\n## ")[0]
    assert f"`{constants.AUTOSCALER_DECISION_ANNOTATION}`" in way_back
    assert set(re.findall(r"`(raytide\.io/[^`]+)`", way_back)) == {constants.AUTOSCALER_DECISION_ANNOTATION}


def reasons_of_module(module: ModuleType) -> set[str]:
    """Values of the constants that are spelled like a reason."""
    values = {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    return {value for name, value in values.items() if value.replace(" ", "").lower() == name.replace("_", "").lower()}


def test_the_table_of_scaling_limited_has_every_reason_of_the_code():
    known = {*reasons_of_module(limit_reasons), *Cause, *Stuck, *Unready, IN_BACKOFF, constants.OTHER_LIMIT}
    assert {"MaxReached", "InvalidGroup", "Draining", "UpscalingLimited", "ConstraintUnmet"} < known
    (_, text) = GUIDE.read_text().split("\nWith autoscaling, `ScalingLimited`")
    table = re.findall(r"^\| (`[^|]+) \|", text.split("\n`AutoscalerDown`")[0], re.MULTILINE)
    named = [name for row in table for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(known)

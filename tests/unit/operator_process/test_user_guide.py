"""docs/user-guide.md says of the way back to KubeRay what the code leaves behind."""

import re
from pathlib import Path

import pytest

from raytide.api import names

GUIDE = Path(__file__).parents[3] / "docs" / "user-guide.md"


@pytest.mark.rule("FD:RC-B12")
def test_the_way_back_names_the_annotation_that_the_sidecar_leaves():
    (_, text) = GUIDE.read_text().split("\nTo go back: stop Raytide, start KubeRay.")
    way_back = text.split("\n## ")[0]
    assert f"`{names.AUTOSCALER_DECISION_ANNOTATION}`" in way_back
    assert set(re.findall(r"`(raytide\.io/[^`]+)`", way_back)) == {names.AUTOSCALER_DECISION_ANNOTATION}

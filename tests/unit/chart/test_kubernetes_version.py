"""The oldest Kubernetes: one number in chart and documents, and no older than what the CRDs use."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FEATURES = {"optionalOldSelf": (1, 30), "x-kubernetes-validations": (1, 29), "selectableFields": (1, 31)}
"""What the CRDs may use, and since when an API server takes it without a feature gate."""


def versions(path: str, pattern: str) -> set[tuple[int, int]]:
    found = re.findall(pattern, (ROOT / path).read_text())
    return {(int(major), int(minor)) for major, minor in found}


@pytest.mark.rule("FD:RC-B11")
def test_the_oldest_kubernetes_is_one_number_and_takes_the_crds():
    crds = "".join(path.read_text() for path in (ROOT / "crds").glob("*.yaml"))
    needed = max(since for feature, since in FEATURES.items() if feature in crds)
    assert versions("helm/raytide/Chart.yaml", r'kubeVersion: ">=(\d+)\.(\d+)') == {needed}
    assert versions("helm/raytide/README.md", r"Needs Kubernetes (\d+)\.(\d+) or newer") == {needed}
    assert versions("docs/compatibility.md", r"\| (\d+)\.(\d+) or newer") == {needed}

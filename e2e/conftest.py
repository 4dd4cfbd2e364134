"""What is given to the suite from outside, and what it leaves behind.

Given: a cluster (`KUBECONFIG`), an image that its nodes have or can pull (`RAYTIDE_E2E_IMAGE`), and, where there is one,
the API server's audit log (`RAYTIDE_E2E_AUDIT_LOG`). When the suite ends, however it ends, the release and its
namespaces are gone.
"""

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster import Failed, helm, kubectl, setting

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Installation:
    """One release of the chart, and what the tests learn about it on their way."""

    namespace: str
    """The operator's."""
    ray_namespace: str
    """Where the Ray clusters are."""
    image: str
    release: str = "raytide"
    chart: Path = ROOT / "helm" / "raytide"
    sample: Path = ROOT / "samples" / "raycluster.yaml"
    granted: set[str] = field(default_factory=set)

    @property
    def user(self) -> str:
        """Who the operator is to the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.release}"

    @property
    def image_values(self) -> list[str]:
        """The image as `--set` options."""
        repository, _, tag = self.image.rpartition(":")
        return ["--set", f"image.repository={repository}", "--set-string", f"image.tag={tag}"]


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """Names for one run; nothing is installed yet."""
    run = secrets.token_hex(3)
    image = setting("RAYTIDE_E2E_IMAGE") or "raytide:dev"
    made = Installation(f"raytide-{run}", f"ray-{run}", image)
    kubectl("create", "namespace", made.ray_namespace)
    yield made
    with contextlib.suppress(Failed):
        helm("uninstall", made.release, "-n", made.namespace)
    for namespace in (made.ray_namespace, made.namespace):
        with contextlib.suppress(Failed):
            kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="session")
def audit_log() -> Path:
    """The API server's audit log; without one, tests that read it are skipped and say so."""
    path = setting("RAYTIDE_E2E_AUDIT_LOG")
    if not path:
        pytest.skip("nobody said where the API server's audit log is (RAYTIDE_E2E_AUDIT_LOG)")
    return Path(path)

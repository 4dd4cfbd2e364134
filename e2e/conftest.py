"""Inputs of the suite from the environment, and the files that it writes.

Given: a cluster (`KUBECONFIG`), an image that its nodes have or can pull (`RAYTIDE_E2E_IMAGE`), and, where there is one,
the API server's audit log (`RAYTIDE_E2E_AUDIT_LOG`). When the suite ends, however it ends, its releases and
namespaces are gone.
"""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import CommandError, helm, kubectl, setting
from installation import Installation


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """Names for one run; nothing is installed yet."""
    run = secrets.token_hex(3)
    image = setting("RAYTIDE_E2E_IMAGE") or "raytide:dev"
    made = Installation(f"raytide-{run}", f"ray-{run}", image)
    kubectl("create", "namespace", made.ray_namespace)
    kubectl("create", "namespace", made.namespace)
    kubectl("label", "namespace", made.namespace, "pod-security.kubernetes.io/enforce=restricted")
    yield made
    with contextlib.suppress(CommandError):
        for release in helm("list", "-n", made.namespace, "--short", "--all").split():
            helm("uninstall", release, "-n", made.namespace)
    for namespace in (made.ray_namespace, made.namespace):
        with contextlib.suppress(CommandError):
            kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="session")
def audit_log() -> Path:
    """The API server's audit log; without one, tests that read it are skipped with a reason."""
    path = setting("RAYTIDE_E2E_AUDIT_LOG")
    if not path:
        pytest.skip("RAYTIDE_E2E_AUDIT_LOG is not set: the path of the API server's audit log is unknown")
    return Path(path)


FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines that are shown when the suite ends."""
    return request.config.stash.setdefault(FIGURES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was counted: how often the operator used which right."""
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """A failed step shows what the cluster looked like, before the end clears it away."""
    report = yield
    installation = item.funcargs.get("installation")
    if report.failed and installation:
        report.sections.append(("the cluster", cluster_state(installation)))
    return report


def cluster_state(installation: Installation) -> str:
    """Pods, events and the last words of the operator and of heads."""
    questions = [
        [*args, "-n", namespace]
        for namespace in (installation.namespace, installation.ray_namespace)
        for args in (["get", "pods,rayclusters", "-o", "wide"], ["get", "events", "--sort-by=.lastTimestamp"])
    ]
    questions.append(["logs", "-n", installation.namespace, "-l", installation.of_release, "--tail=80", "--prefix"])
    of_heads = ["-l", "ray.io/node-type=head", "--all-containers"]
    questions.append(["logs", "-n", installation.ray_namespace, *of_heads, "--tail=40", "--prefix"])
    return "\n".join(_output(*args) for args in questions)


def _output(*args: str) -> str:
    try:
        return f"$ kubectl {' '.join(args)}\n{kubectl(*args)}"
    except CommandError as error:
        return f"$ {error}"

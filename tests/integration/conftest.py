"""Every integration test runs on a real control plane too, or is listed with the reason why not."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from support.kube_plane import RUNNING

HERE = Path(__file__).parent

EMBEDDED_ONLY: Final = {
    "test_gcs_ray.py": "needs no API server",
    "test_gcs_ray_nodes.py": "needs no API server",
    "test_fault_proxy.py": "is about the proxy; tests/acceptance uses it before a real API server",
    "test_golden_specs.py": "`make golden` does the same on a real control plane",
    "test_hostile_objects.py": "stores what a real API server would reject by now, and measures the operator alone",
    "test_helm.py": "is about the responses of the emulator to helm; `make e2e` installs on a real control plane",
    "test_kubectl.py": "is about the responses of the emulator to kubectl",
    "test_kubelet.py": "is about the process kubelet; test_sandbox_kubernetes.py has what needs a real control plane",
    "test_node_runtime.py": "needs no API server",
    "test_node_runtime_ends.py": "needs no API server",
    "test_node_runtime_ray.py": "needs no API server",
    "test_ray_resources_variable.py": "needs no API server",
    "test_ray_autoscaling.py": "`make e2e` has the same scenario on a real control plane",
    "test_ray_cluster.py": "`make e2e` has the same scenario on a real control plane",
    "test_leadership.py": "its proxies run in the emulator's process; tests/acceptance has two replicas on a real one",
    "test_a_missing_kubeconfig": "there is no API server",
    "test_probe_tunnel.py": "is about the emulator's tunnels to the process kubelet",
    "test_sandbox.py": "is about the sandbox with the emulator in it",
    "test_ray_token_auth.py": "real Ray runs as processes of the sandbox; test_token_auth.py has the Secret on a real control plane",
    "test_ray_fault_tolerance.py": "real Ray and Redis run as processes of the sandbox; tests/acceptance has the Job on a real control plane",
    "test_real_training.py": "is about programs that run as processes of the sandbox",
    "test_trainingjob_peers.py": "is about pods that run as processes",
    "test_quickstart.py": "its cluster is the sandbox that the page starts",
    "test_user_guide.py": "the outputs in the guide are from the sandbox",
    "test_documented_commands.py": "the pages show the sandbox; those about a real control plane run on one",
    "test_bad_flags_and_variables": "the autoscaler sends no requests to the API server before it has read them",
    "test_a_missing_service_account": "there is no identity to call an API server with",
    "test_outside_a_pod": "there is no API server",
    "test_every_listed_difference_has_a_question": "sends no requests to an API server",
    "test_the_embedded_api_answers_as_recorded": "is the recording's part; the live comparison is in the same file",
    "probe/test_kubectl.py": "compares the output of kubectl for both servers where it is installed",
}
"""File or beginning of a test's name -> why it does not use a real control plane."""


@pytest.fixture(scope="module", autouse=True)
def workloads_end_with_their_file(pytestconfig: pytest.Config) -> Iterator[None]:
    """A job that is left is planned with those of the next file, and a pod that is left takes their nodes."""
    yield
    if (plane := pytestconfig.stash.get(RUNNING, None)) is not None:
        plane.leave_made()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reject tests that are neither marked `kube` nor listed; not if single tests were selected."""
    if any("::" in argument for argument in config.args):
        return
    ours = [item for item in items if HERE in item.path.parents]
    on_kube = {_of(item) for item in ours if item.get_closest_marker("kube")}
    odd = [item for item in ours if _of(item) not in on_kube and not _is_listed(item)]
    if not odd:
        return
    names = ", ".join(sorted({f"{item.path.relative_to(HERE)}::{_of(item)[1]}" for item in odd}))
    words = f"only on the embedded API, and not listed with a reason in tests/integration/conftest.py: {names}"
    if not hasattr(config, "workerinput"):
        raise pytest.UsageError(words)
    for item in odd:  # output of a pytest-xdist worker during collection is lost
        item.runtest = partial(pytest.fail, words, pytrace=False)  # type: ignore[method-assign]


def _of(item: pytest.Item) -> tuple[Path, str]:
    return item.path, getattr(item, "originalname", item.name)


def _is_listed(item: pytest.Item) -> bool:
    path, name = _of(item)
    return str(path.relative_to(HERE)) in EMBEDDED_ONLY or any(name.startswith(entry) for entry in EMBEDDED_ONLY)

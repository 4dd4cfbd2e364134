"""The control planes of the acceptance scenarios, checked by audit logs, and their split over two processes."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from acceptance.audit import POLICY
from acceptance.environment import Env
from acceptance.job_environment import JobEnv
from kube_tools import find_tool
from raytide_sandbox.controlplane.processes import ControlPlane, PlaneSettings, find_binary
from support.kwok_process import Kwok
from support.plane_admin import PlaneAdmin

BUSY = {
    "test_exactly_n.py",
    "test_training_shares.py",
    "test_training_shares_slowly.py",
    "test_two_replicas.py",
}
"""Scenarios that take most of a processor for minutes. They have bars in seconds: no two of them run at the same time."""


class OneProcessForBusyScenarios(LoadScopeScheduling):
    """One process of pytest-xdist runs them first, one after the other; the others are given to the process that is free.

    `--dist loadgroup` does the same with marks, but not with pytest 9, which ignores the changed node ids.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "busy" if Path(nodeid.partition("::")[0]).name in BUSY else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Whatever `--dist` says."""
    return OneProcessForBusyScenarios(config, log)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, API server and controllers; no scheduler, for the kubelet of the test takes every pod."""
    folder: Path = tmp_path_factory.mktemp("plane")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    settings = PlaneSettings(
        parts=("etcd", "kube-apiserver", "kube-controller-manager"),
        has_audit=True,
        is_durable=False,
        gogc=400,
        apiserver_flags=(f"--audit-policy-file={policy}",),
    )
    with ControlPlane(folder / "state", find_binary(), settings) as plane:
        yield plane


@pytest.fixture
def is_namespaced() -> bool:
    """Whether operators watch the scenario's namespace alone; test_namespaced.py overrides it."""
    return bool(os.environ.get("RAYTIDE_TEST_NAMESPACED"))


@pytest.fixture
async def env(
    plane: ControlPlane,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    is_namespaced: bool,  # noqa: FBT001 - a fixture
) -> AsyncIterator[Env]:
    """A namespace with a fleet and its kubelet."""
    async with PlaneAdmin(plane.server, plane.authority, plane.admin_token) as admin:
        env = Env(plane, admin, tmp_path, record_property, is_namespaced=is_namespaced)
        await env.begin()
        try:
            yield env
        finally:
            await env.end()


@pytest.fixture(scope="session")
def job_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """All of Kubernetes but kubelets, and kwok in their place: TrainingJobs are about who gets a node."""
    folder: Path = tmp_path_factory.mktemp("job-plane")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    settings = PlaneSettings(
        has_audit=True, is_durable=False, gogc=400, apiserver_flags=(f"--audit-policy-file={policy}",)
    )
    with (
        ControlPlane(folder / "state", find_binary(), settings) as plane,
        Kwok(find_tool("kwok"), plane.kubeconfig, folder / "kwok.log"),
    ):
        yield plane


@pytest.fixture
async def jobs(
    job_plane: ControlPlane,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    is_namespaced: bool,  # noqa: FBT001 - a fixture
) -> AsyncIterator[JobEnv]:
    """A namespace for TrainingJobs, without nodes yet."""
    async with PlaneAdmin(job_plane.server, job_plane.authority, job_plane.admin_token) as admin:
        env = JobEnv(job_plane, admin, tmp_path, record_property, is_namespaced=is_namespaced)
        await env.begin()
        try:
            yield env
        finally:
            await env.end()

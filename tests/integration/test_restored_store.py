"""etcd is restored from an older snapshot while the operator runs: its informers have versions from the lost history.

On a real control plane of its own, with all its addresses unchanged. etcd's files are copied while etcd stands still, which is
what a power failure would leave; later the control plane ends, finds the copy in place of its files, and starts again. What
the operator does afterwards is counted by the audit log (RM:F10, FD:REL-C).
"""

import os
import shutil
import signal
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from raytide_sandbox.controlplane.flags import PARTS
from raytide_sandbox.controlplane.processes import ControlPlane, PlaneSettings
from support.builders import group, raycluster
from support.kube_plane import eventually, find_plane_binary, plane_of
from support.operator_process import OperatorProcess
from support.plane_admin import JOB_CRD, PlaneAdmin
from support.training_builders import trainingjob

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

NAMESPACE, HOME = "restored", "raytide-system"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLUSTER = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters"
JOB = f"/apis/paddlepaddle.org/v1/namespaces/{NAMESPACE}/trainingjobs"
FUTURE = 400
"""So many writes lie between snapshot and accident, or more: versions must not catch up while a test looks."""
SILENCE_S = 12
"""Instead of a minute: the timeout of a silent watch. Streams that stay open for less than 10 s end in a list anyway."""
FOLLOWED_WITHIN_S = 30.0
"""One silent watch, one list, and what the machine takes for it."""


class Restorable:
    """A control plane whose etcd can be put back to an earlier moment, its administrator and what the operator did."""

    def __init__(self, folder: Path) -> None:
        settings = PlaneSettings(parts=PARTS[:2], has_audit=True, is_durable=False)
        self.control = ControlPlane(folder / "plane", find_plane_binary(), settings)
        self.folder = folder

    def request(self, method, path, body=None):
        """One that has to succeed."""
        status, answer = plane_of(self.control).request_json(method, path, body)
        assert status < 300, answer
        return answer

    @property
    def _store(self):
        found = [path.parent for path in self.control.directory.rglob("member") if path.is_dir()]
        assert len(found) == 1, found
        return found[0]

    def snapshot(self):
        """etcd's files as they are at one instant; returns where they are kept."""
        pid = self.control.pid(PARTS[0])
        kept = self.folder / "snapshot"
        shutil.rmtree(kept, ignore_errors=True)
        os.kill(pid, signal.SIGSTOP)
        try:
            shutil.copytree(self._store, kept)
        finally:
            os.kill(pid, signal.SIGCONT)
        return kept

    def restore(self, kept):
        """Back to that instant; returns when the API server is ready again, at the address it had."""
        server, store = self.control.server, self._store
        self.control.stop()
        shutil.rmtree(store)
        shutil.copytree(kept, store)
        self.control.start()
        assert self.control.server == server

    def version(self):
        """The store's."""
        return int(self.request("GET", PODS)["metadata"]["resourceVersion"])

    def names(self, label):
        """Pods with that label that do not terminate, and their uids."""
        found = self.request("GET", f"{PODS}?labelSelector={label}")["items"]
        live = [pod["metadata"] for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return {metadata["name"]: metadata["uid"] for metadata in live}

    def is_filled(self, label, count, before):
        """Whether there are so many pods, and not those of before; a trainer's successor has its name."""
        now = self.names(label)
        return len(now) == count and now != before

    def scale(self, path, size):
        """As a user would; whatever the operator writes meanwhile."""
        spec = self.request("GET", path)["spec"]
        groups = spec.get("workerGroupSpecs")
        change = {"workerGroupSpecs": [{**groups[0], "replicas": size}]} if groups else {"trainer": {"replicas": size}}
        self.request("PATCH", path, {"spec": change})

    def is_told(self, path):
        """Whether the status is of the newest spec."""
        found = self.request("GET", path)
        return found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]

    def done_since(self, line):
        """The operator's creates and deletes of pods that the audit log has after that line, by verb; and its length."""
        events = plane_of(self.control).audit_events()
        done = Counter(
            event["verb"]
            for event in events[line:]
            if event["user"]["username"].startswith("system:serviceaccount:")
            and event.get("objectRef", {}).get("resource") == "pods"
            and event["verb"] in ("create", "delete")
            and event["responseStatus"]["code"] < 300
        )
        return done, len(events)


@pytest.fixture(scope="module")
def restorable(tmp_path_factory):
    """etcd and the API server, our kinds, a namespace and a node; nothing else reads or writes there."""
    plane = Restorable(tmp_path_factory.mktemp("restorable"))
    with plane.control:
        for namespace in (NAMESPACE, HOME):
            plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            account = {"metadata": {"name": "default"}}  # its controller does not run here
            plane.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "node"}})
        plane.request("PATCH", "/api/v1/nodes/node", {"spec": {"taints": None}})
        capacity = {"cpu": "32", "memory": "128Gi", "pods": "110"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"status": {"capacity": capacity, "allocatable": capacity, "conditions": ready}}
        plane.request("PATCH", "/api/v1/nodes/node/status", status)
        yield plane


@pytest.fixture
async def operator(restorable, tmp_path):
    """`raytide operator` with the rights of the chart and a shorter patience for silent watches; running."""
    control = restorable.control
    async with PlaneAdmin(control.server, control.authority, control.admin_token) as admin:
        await admin.install_crd()
        await admin.install_crd(JOB_CRD)
        kubeconfig = await admin.operator_account(HOME, tmp_path)
    environment = {"RAYTIDE_STREAM_SILENCE": str(SILENCE_S)}
    with OperatorProcess(kubeconfig, tmp_path / "operator.log", environment=environment) as operator:
        yield operator


@contextmanager
def frozen(pid, *, is_so):
    """The process stands still meanwhile, if it is so."""
    if is_so:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if is_so:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.rule("FD:REL-C", "RM:F10", "RM:I1")
@pytest.mark.parametrize("is_frozen", [True, False], ids=["in one blink of the operator", "before the operator's eyes"])
def test_a_store_that_went_back_is_followed_and_no_pod_is_made_too_many(restorable, operator, *, is_frozen):
    """It meets either a refused connection for some seconds, or a restarted server that sends nothing."""
    name = f"demo-{is_frozen}".lower()
    cluster, job = f"{CLUSTER}/{name}", f"{JOB}/{name}"
    workers, trainers = f"ray.io/cluster={name},ray.io/group=cpu", f"paddle-job={name}"
    restorable.request("POST", CLUSTER, _named(raycluster(group(replicas=3)), name))
    fixed = trainingjob(
        low=1, high=9, trainer={"entrypoint": "python train.py", "replicas": 2}, scaling={"enabled": False}
    )
    restorable.request("POST", JOB, _named(fixed, name))
    eventually(lambda: len(restorable.names(workers)) == 3, "three workers", 60)
    eventually(lambda: len(restorable.names(trainers)) == 2, "two trainers", 60)
    eventually(lambda: restorable.is_told(cluster), "the operator has seen the cluster", 60)
    before, kept = restorable.version(), restorable.snapshot()

    for number in range(FUTURE):
        restorable.request("PATCH", f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": {"n": str(number)}}})
    for size in (5, 3):  # what the operator sees last must be of the future
        restorable.scale(cluster, size)
        restorable.scale(job, size)
        eventually(lambda size=size: len(restorable.names(workers)) == size, f"{size} workers", 30)
        eventually(lambda size=size: len(restorable.names(trainers)) == size, f"{size} trainers", 30)
    future = restorable.version()
    assert future - before > FUTURE
    with frozen(operator.pid, is_so=is_frozen):
        restorable.restore(kept)
    _, line = restorable.done_since(0)
    for label, count in (
        (workers, 3),
        (trainers, 2),
    ):  # no edit makes the operator look: only its watches can show this
        there = restorable.names(label)
        restorable.request("DELETE", f"{PODS}/{min(there)}")
        fill = partial(restorable.is_filled, label, count, there)
        eventually(fill, f"another pod in place of one of {label}", FOLLOWED_WITHIN_S)
    restorable.scale(cluster, 5)
    restorable.scale(job, 4)
    eventually(lambda: len(restorable.names(workers)) >= 5, "five workers", FOLLOWED_WITHIN_S)
    eventually(lambda: len(restorable.names(trainers)) >= 4, "four trainers", FOLLOWED_WITHIN_S)

    eventually(lambda: restorable.is_told(cluster), "the operator says that it has seen the edit", FOLLOWED_WITHIN_S)
    if is_frozen:
        assert "API server's resourceVersion is" in operator.log.read_text(), "a watch of the future was doubted"
    restorable.scale(cluster, 1)
    eventually(lambda: len(restorable.names(workers)) == 1, "one worker", FOLLOWED_WITHIN_S)
    # A pod is gone before the answer to its delete is complete, which is when the audit log has it.
    eventually(lambda: restorable.done_since(line)[0].total() >= 10, "the audit log has each write", FOLLOWED_WITHIN_S)
    done, _ = restorable.done_since(line)
    assert (restorable.version() < future, done) == (True, Counter(create=6, delete=4))
    for path in (cluster, job):
        restorable.request("DELETE", path)


def _named(obj, name):
    return {**obj, "metadata": {"name": name, "namespace": NAMESPACE}}

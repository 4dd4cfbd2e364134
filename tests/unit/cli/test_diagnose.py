"""`raytide diagnose`: what it collects, what it says could not be read, the archive, and how it is written."""

import asyncio
import errno
import io
import json
import os
import stat
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

import raytide.cli
from raytide.api.errors import ApiUnavailableError
from raytide.cli.diagnose import bundle as bundles
from raytide.cli.diagnose import collect
from raytide.cli.diagnose.bundle import Bundle, Unread
from raytide.cli.diagnose.collect import Collector
from raytide.cli.diagnose.redact_objects import Redactor
from raytide.cli.diagnose.write_file import WriteError, check_target, write_file
from raytide.client.workload_reader import AmbiguousError, ReadError
from raytide.kube.client import Client
from raytide.kube.transport import Response
from raytide.runtime.clock import Clock
from raytide_sandbox.apiserver.routes import Request
from support.faults.types import Answer
from support.stored_workloads import api_with, cluster_object, job_object, pod_object, warning

from simulation.in_process_transport import InProcessTransport

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LABELS = {"app.kubernetes.io/name": "raytide", "app.kubernetes.io/instance": "x"}


class Wire(InProcessTransport):
    """The API server, with logs, and without some rights."""

    def __init__(self, api, *, forbidden=(), logs=None, silent="") -> None:
        super().__init__(api)
        self.silent = silent
        self.asked: list[tuple[str, str]] = []
        self.logs = logs or {}
        self.admission = lambda request: (
            Answer(403, "Forbidden") if not {*request.path.split("/")}.isdisjoint(forbidden) else None
        )

    async def request(self, method, path, *, query=None, **rest):
        self.asked.append((method, path))
        if self.silent and path.endswith(self.silent):
            await asyncio.sleep(rest["timeout_s"])
            raise ApiUnavailableError("timed out")
        if path.endswith("/log") and not (query or {}).get("previous"):
            text = self.logs.get((path.split("/")[-2], query["container"]))
            if text is not None:
                content = "\n".join(text.split("\n")[-int(query["tailLines"]) :]).encode()
                return Response(200, content[: int(query["limitBytes"])])
        return await super().request(method, path, query=query, **rest)


async def collected(
    api, *name, forbidden=(), logs=None, has_logs=True, operator_namespace="", namespace="default", silent=""
):
    """Bundle and requests."""
    wire = Wire(api, forbidden=forbidden, logs=logs, silent=silent)
    redactor, bundle = Redactor(b"key", {"log-level"}), Bundle(NOON)
    collector = Collector(Client(wire, clock=Clock()), bundle, redactor, has_logs=has_logs)
    kind, one = name or ("", "")
    await collector.collect(kind, one, namespace, operator_namespace)
    bundle.finish("x", redactor.counts)
    return bundle, wire.asked


def owned(pod, uid="uid-2"):
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "demo", "uid": uid, "controller": True}
    ]
    return pod


def head_pod():
    pod = pod_object("demo-head-abcde", labels={"ray.io/cluster": "demo", "ray.io/node-type": "head"}, phase="Running")
    pod["spec"]["containers"] += [
        {"name": "autoscaler", "image": "raytide", "env": [{"name": "A", "value": "hunter2"}]}
    ]
    pod["spec"]["nodeSelector"] = {"team": "a"}
    return pod


def autoscaled():
    made = cluster_object()
    made["spec"]["enableInTreeAutoscaling"] = True
    return made


NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"team": "a", "owner": "ada"}},
    "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
}  # fmt: skip
RAYCLUSTERS = "/apis/ray.io/v1/namespaces/{}/rayclusters"
FOLDER = "namespaces/default/raycluster-demo"


def parsed(bundle, path):
    return json.loads(bundle.files[path])


# --- collecting ------------------------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_workload_with_what_belongs_to_it():
    api = api_with(
        autoscaled(), cluster_object("other"), head_pod(), pod_object("of-another-cluster", labels={"ray.io/cluster": "other"}), dict(NODE),
        warning("demo.1", "RayCluster", "demo", "no pods: password=hunter2"),
    )  # fmt: skip
    logs = {("demo-head-abcde", "autoscaler"): "scaled\x1b[31m\npassword=hunter2\n"}
    bundle, asked = await collected(api, "", "demo", logs=logs)
    assert list(bundle.files) == [
        "README.txt", f"{FOLDER}/object.json", f"{FOLDER}/pods.json", f"{FOLDER}/why.json", f"{FOLDER}/services.json",
        f"{FOLDER}/service-accounts.json", f"{FOLDER}/roles.json", f"{FOLDER}/role-bindings.json", f"{FOLDER}/autoscaler.log",
        f"{FOLDER}/events.json", "versions.json", "definitions.json", "nodes.json",
    ]  # fmt: skip
    assert [pod["metadata"]["name"] for pod in parsed(bundle, f"{FOLDER}/pods.json")] == ["demo-head-abcde"]
    assert parsed(bundle, f"{FOLDER}/why.json")["kind"] == "Explanation"
    assert parsed(bundle, f"{FOLDER}/object.json")["spec"]["enableInTreeAutoscaling"] is True
    assert bundle.files[f"{FOLDER}/autoscaler.log"] == b"scaled\\x1b[31m\npassword=<redacted>\n"
    assert parsed(bundle, "nodes.json")[0]["metadata"]["labels"] == {"team": "a"}
    assert parsed(bundle, "versions.json")["kubernetes"]["gitVersion"]
    assert {each["metadata"]["name"] for each in parsed(bundle, "definitions.json")} == {
        "rayclusters.ray.io",
        "trainingjobs.paddlepaddle.org",
    }
    assert {method for method, _ in asked} == {"GET"}
    assert not [path for _, path in asked if "secrets" in path]
    assert b"hunter2" not in b"".join(bundle.files.values())


@pytest.mark.looptime
async def test_a_users_container_named_autoscaler_keeps_its_log():
    worker = pod_object("demo-cpu-worker-a")
    worker["spec"]["containers"].append({"name": "autoscaler", "image": "mine"})
    for cluster, pod in ((cluster_object(), head_pod()), (autoscaled(), worker)):
        bundle, asked = await collected(api_with(cluster, pod), "", "demo")
        assert not [path for _, path in asked if path.endswith("/log")]
        assert f"{FOLDER}/autoscaler.log" not in bundle.files


@pytest.mark.looptime
async def test_events_are_those_of_the_workload_and_of_its_pods():
    cluster, pod = cluster_object(), pod_object("demo-cpu-worker-a")
    api = api_with(cluster, pod)
    uids = {
        kind: json.loads(api.handle(request(path)).body)["metadata"]["uid"]
        for kind, path in (
            ("RayCluster", "/apis/ray.io/v1/namespaces/default/rayclusters/demo"),
            ("Pod", "/api/v1/namespaces/default/pods/demo-cpu-worker-a"),
        )
    }
    for name, uid, message in (("a", uids["RayCluster"], "one"), ("b", uids["Pod"], "two"), ("c", "uid-99", "three")):
        event = warning(name, "Pod", "x", message)
        event["involvedObject"]["uid"] = uid
        assert api.handle(request("/api/v1/namespaces/default/events", event)).status == 201
    bundle, _ = await collected(api, "RayCluster", "demo")
    assert sorted(each["message"] for each in parsed(bundle, f"{FOLDER}/events.json")) == ["one", "two"]


def request(path, body=None):
    return Request("POST" if body else "GET", path, {}, {}, json.dumps(body).encode() if body else b"")


@pytest.mark.looptime
async def test_a_job_has_its_config_maps_by_name_only():
    job = job_object()
    api = api_with(job)
    labels = {"raytide.io/training-job": "demo"}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "demo-m", "labels": labels},
        "data": {"a": "hunter2"},
    }
    assert api.handle(request("/api/v1/namespaces/default/configmaps", config)).status == 201
    bundle, asked = await collected(api, "TrainingJob", "demo")
    (found,) = parsed(bundle, "namespaces/default/trainingjob-demo/config-maps.json")
    assert (found["metadata"]["name"], "data" in found) == ("demo-m", False)
    assert not [path for _, path in asked if "roles" in path]


@pytest.mark.looptime
async def test_without_a_name_all_workloads_of_the_namespace_are_collected():
    bundle, _ = await collected(api_with(cluster_object("a"), cluster_object("b"), job_object("c")))
    folders = {path.split("/")[2] for path in bundle.files if path.startswith("namespaces/")}
    assert folders == {"raycluster-a", "raycluster-b", "trainingjob-c"}


@pytest.mark.looptime
async def test_the_workloads_of_all_namespaces():
    api = api_with(cluster_object())
    other = {**cluster_object("b"), "metadata": {"name": "b", "namespace": "other"}}
    for path, obj in (("/api/v1/namespaces", {"metadata": {"name": "other"}}), (RAYCLUSTERS.format("other"), other)):
        assert api.handle(request(path, obj)).status == 201
    bundle, _ = await collected(api, namespace="")
    folders = {path.rpartition("/")[0] for path in bundle.files if path.startswith("namespaces/")}
    assert folders == {FOLDER, "namespaces/other/raycluster-b"}


@pytest.mark.looptime
async def test_an_api_server_that_stops_answering_leaves_what_was_read(monkeypatch):
    bundle, _ = await collected(api_with(cluster_object()), "", "demo", silent="nodes")
    assert "  list nodes cluster-wide: timed out\n" in bundle.files["README.txt"].decode()
    monkeypatch.setattr(collect, "MAX_S", 5.0)
    bundle, _ = await collected(api_with(cluster_object()), "", "demo", silent="services")
    assert "  everything that could not be read within 5 s\n" in bundle.files["README.txt"].decode()
    assert f"{FOLDER}/pods.json" in bundle.files
    with pytest.raises(ReadError, match="the API server did not answer within 5 s"):
        await collected(api_with(cluster_object()), "", "demo", silent="demo")


@pytest.mark.looptime
async def test_in_an_empty_namespace_there_are_the_rest_of_the_files():
    bundle, _ = await collected(api_with())
    assert list(bundle.files) == ["README.txt", "versions.json", "definitions.json", "nodes.json"]
    assert bundle.notes == [
        "RayClusters and TrainingJobs in namespace default",
        "a Deployment with the label app.kubernetes.io/name=raytide in any namespace: name its namespace by --operator-namespace",
    ]
    assert all(f"  {note}\n" in bundle.files["README.txt"].decode() for note in bundle.notes)
    bundle, _ = await collected(api_with(cluster_object()), operator_namespace="x")
    assert bundle.notes == ["a Deployment that runs `raytide operator` in namespace x"]
    bundle, _ = await collected(api_with(), forbidden={"deployments", "rayclusters"})
    assert bundle.notes == []


@pytest.mark.looptime
async def test_what_may_not_be_read_is_named_with_verb_and_resource_and_the_rest_is_there():
    api = api_with(autoscaled(), head_pod())
    forbidden = {"roles", "nodes", "log", "events", "customresourcedefinitions", "deployments"}
    bundle, _ = await collected(api, "", "demo", forbidden=forbidden)
    readme = bundle.files["README.txt"].decode()
    for line in (
        "may not list roles.rbac.authorization.k8s.io in namespace default: on purpose",
        "may not list nodes cluster-wide: on purpose",
        "may not get pods/log in namespace default: on purpose",
        "may not list events in namespace default: on purpose",
        "may not list deployments.apps cluster-wide: on purpose",
        "may not get customresourcedefinitions.apiextensions.k8s.io cluster-wide: on purpose",
    ):
        assert f"  {line}\n" in readme
    assert f"{FOLDER}/pods.json" in bundle.files
    assert "nodes.json" not in bundle.files


@pytest.mark.looptime
async def test_a_workload_that_may_not_be_read_or_does_not_exist_is_an_error():
    with pytest.raises(ReadError, match="cannot be read: on purpose"):
        await collected(api_with(cluster_object()), "RayCluster", "demo", forbidden={"rayclusters"})
    with pytest.raises(ReadError, match="there is no RayCluster or TrainingJob x"):
        await collected(api_with(cluster_object()), "", "x")
    with pytest.raises(ReadError, match="rayclusters and trainingjobs cannot be listed"):
        await collected(api_with(cluster_object()), forbidden={"rayclusters", "trainingjobs"})
    with pytest.raises(AmbiguousError):
        await collected(api_with(cluster_object(), job_object()), "", "demo")


def operator_objects(api, namespace="raytide-system", *, name="raytide", labels=None, args=("operator",)):
    """A Deployment with one pod and a Lease."""
    labels = LABELS if labels is None else labels
    container = {"name": "operator", "image": "raytide:1", "command": ["raytide"], "args": [*args]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    for path, obj in (
        ("/api/v1/namespaces", {"metadata": {"name": namespace}}),
        (f"/apis/apps/v1/namespaces/{namespace}/deployments", {"metadata": {"name": name, "labels": labels}, "spec": spec}),
        (f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": f"{name}-1", "labels": labels}, "spec": template["spec"]}),
        (f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", {"metadata": {"name": "ray-operator-leader"}, "spec": {"holderIdentity": f"{name}-1"}}),
    ):  # fmt: skip
        answered = api.handle(request(path, obj))
        assert answered.status == 201, answered.body
    return api


@pytest.mark.looptime
async def test_the_operator_is_found_by_the_charts_labels():
    api = operator_objects(api_with(cluster_object()), args=("operator", "--log-level=debug", "--password=hunter2"))
    logs = {("raytide-1", "operator"): "a\nsecret: hunter2\nb\n"}
    bundle, _ = await collected(api, "", "demo", logs=logs)
    (deployment,) = parsed(bundle, "operator/deployments.json")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["operator", "--log-level=debug"]
    assert container["args"][2].startswith("<redacted ")
    assert parsed(bundle, "operator/leases.json")[0]["spec"]["holderIdentity"] == "raytide-1"
    assert [pod["metadata"]["name"] for pod in parsed(bundle, "operator/pods.json")] == ["raytide-1"]
    assert bundle.files["operator/raytide-1-operator.log"] == b"a\nsecret: <redacted>\nb\n"


@pytest.mark.looptime
async def test_another_program_with_the_charts_label_is_not_the_operator():
    api = operator_objects(api_with(cluster_object()), args=("web",))
    bundle, asked = await collected(api, "", "demo")
    assert "operator/deployments.json" not in bundle.files
    assert not [path for _, path in asked if path.endswith("/log")]


@pytest.mark.looptime
async def test_in_a_named_namespace_the_operator_is_found_by_its_command():
    api = operator_objects(api_with(cluster_object()), "own", name="mine", labels={"app": "mine"})
    bundle, asked = await collected(api, "", "demo", operator_namespace="own", has_logs=False)
    assert parsed(bundle, "operator/deployments.json")[0]["metadata"]["name"] == "mine"
    assert not [path for path in bundle.files if path.endswith(".log")]
    assert not [path for _, path in asked if path.endswith("/log") or "raytide-system" in path]


@pytest.mark.looptime
async def test_the_number_of_objects_is_bounded(monkeypatch):
    monkeypatch.setattr(collect, "MAX_PODS", 3)
    monkeypatch.setattr(collect, "MAX_WORKLOADS", 2)
    pods = [pod_object(f"demo-cpu-worker-{i}") for i in range(9)]
    bundle, _ = await collected(api_with(cluster_object(), *(cluster_object(f"x{i}") for i in range(5)), *pods))
    assert len(parsed(bundle, f"{FOLDER}/pods.json")) == 3
    readme = bundle.files["README.txt"].decode()
    assert "  pods of ray.io/cluster=demo: all after the first 3\n" in readme
    assert "  rayclusters in namespace default: all after the first 2\n" in readme


@pytest.mark.looptime
async def test_of_a_log_with_long_lines_the_latest_remain_and_no_half_line(monkeypatch):
    monkeypatch.setattr(collect, "LOG_BYTES", 1000)
    text = "\n".join(f"{number:04} {'x y ' * 20}" for number in range(3000))
    bundle, _ = await collected(
        api_with(autoscaled(), head_pod()), "", "demo", logs={("demo-head-abcde", "autoscaler"): text}
    )
    lines = bundle.files[f"{FOLDER}/autoscaler.log"].decode().split("\n")
    assert lines[-1].startswith("2999")
    text = "first\n" + "password" * 500
    bundle, _ = await collected(
        api_with(autoscaled(), head_pod()), "", "demo", logs={("demo-head-abcde", "autoscaler"): text}
    )
    assert bundle.files[f"{FOLDER}/autoscaler.log"] == b""


# --- the archive -----------------------------------------------------------------------------------------------------------


def test_the_archive_says_nothing_about_its_user():
    bundle = Bundle(NOON)
    bundle.add_text("a/b.txt", "x")
    bundle.add_unread(Unread("list", "pods", "x", "a\x1b[31m\nb"))
    bundle.finish("all", {"annotations": 2, "nothing": 0})
    content = bundle.archive("folder")
    assert content == bundle.archive("folder")
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        entries = tar.getmembers()
        readme = tar.extractfile("folder/README.txt").read().decode()
    assert [each.name for each in entries] == ["folder/README.txt", "folder/a/b.txt"]
    assert {(each.uname, each.gname, each.uid, each.gid, each.mode, each.mtime) for each in entries} == {
        ("", "", 0, 0, 0o600, int(NOON.timestamp()))
    }
    assert "  list pods in namespace x: a\\x1b[31m b\n" in readme
    assert readme.endswith("Redacted:\n  2 annotations\n")


def test_the_bytes_of_a_bundle_are_bounded(monkeypatch):
    monkeypatch.setattr(bundles, "MAX_FILE_BYTES", 1000)
    monkeypatch.setattr(bundles, "MAX_BYTES", 2000)
    bundle = Bundle(NOON)
    bundle.add_json("list.json", ["x" * 90] * 20)
    bundle.add_text("large.txt", "x" * 1001)
    bundle.add_text("fits.txt", "x" * 900)
    bundle.add_text("late.txt", "x" * 900)
    assert list(bundle.files) == ["list.json", "fits.txt"]
    assert 0 < len(json.loads(bundle.files["list.json"])) < 20
    assert [each.partition(":")[0] for each in bundle.omitted] == ["list.json", "large.txt", "late.txt"]


# --- the file --------------------------------------------------------------------------------------------------------------


def test_the_file_is_private_and_replaces_no_other(tmp_path):
    path = tmp_path / "a.tar.gz"
    write_file(path, b"one", is_replaced=False)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"one", 0o600)
    with pytest.raises(WriteError, match="exists: name another file by -o, or pass --force"):
        write_file(path, b"two", is_replaced=False)
    with pytest.raises(WriteError, match="exists"):
        check_target(path, is_replaced=False)
    check_target(path, is_replaced=True)
    path.chmod(0o644)
    write_file(path, b"three", is_replaced=True)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"three", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["a.tar.gz"]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    target, path = tmp_path / "target", tmp_path / "link"
    target.write_text("mine")
    path.symlink_to(target)
    with pytest.raises(WriteError, match="exists"):
        write_file(path, b"x", is_replaced=False)
    write_file(path, b"x", is_replaced=True)
    assert (target.read_text(), path.is_symlink(), path.read_bytes()) == ("mine", False, b"x")


def test_without_hard_links_the_name_is_reserved(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    write_file(tmp_path / "a", b"x", is_replaced=False)
    assert (tmp_path / "a").read_bytes() == b"x"
    with pytest.raises(WriteError, match="exists"):
        write_file(tmp_path / "a", b"y", is_replaced=False)
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError) as caught:
        write_file(tmp_path / "a", b"x", is_replaced=False)
    assert str(caught.value) == f"cannot write {tmp_path / 'a'}: No space left on device"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [("none/a", "is not a folder"), ("file/a", "is not a folder"), ("folder", "it is a folder")],
)
def test_a_path_that_cannot_be_written_is_an_error_before_anything_is_read(name, message, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(raytide.cli.main, ["diagnose", "-o", str(tmp_path / name), "--force"])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert message in result.output


def test_a_folder_without_the_right_to_write(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    result = CliRunner().invoke(raytide.cli.main, ["diagnose", "-o", str(tmp_path / "a")])
    assert (result.exit_code, result.output) == (
        1,
        f"Error: cannot write {tmp_path / 'a'}: no permission to write to {tmp_path}\n",
    )


# --- arguments -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("pod/demo",), "'pod' is no kind that Raytide manages"),
        (("a/b/c",), "is not [KIND/]NAME"),
        (("<b>x",), "the name: '<b>x' is not a name in Kubernetes"),
        (("a\x1b[31m",), "the name: 'a\\\\x1b[31m' is not a name in Kubernetes"),
        (("../../x",), "is not [KIND/]NAME"),
        (("demo", "-n", "x/y"), "--namespace: 'x/y' is not a name in Kubernetes"),
        (("--operator-namespace", "x/y"), "--operator-namespace: 'x/y' is not a name in Kubernetes"),
        (("demo", "-A"), "a name cannot be combined with --all-namespaces"),
        (("-n", "a", "-A"), "--namespace cannot be combined with --all-namespaces"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(words, message):
    result = CliRunner().invoke(raytide.cli.main, ["diagnose", *words])
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_without_a_cluster_it_ends_with_one_line_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    result = CliRunner().invoke(raytide.cli.main, ["diagnose", "demo"])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert result.output.startswith("Error: kubeconfig ")
    assert not list(Path(tmp_path).iterdir())

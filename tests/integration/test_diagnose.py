"""`raytide diagnose` beside the real operator, and with a token of one namespace: the bundle has the objects and no secret.

The command runs as a process with the kubeconfig of the cluster, on the embedded API and on a real one, which checks the rights.
"""

import asyncio
import json
import secrets
import stat
import sys
import tarfile

import pytest
import pytest_asyncio

from integration.cluster_under_test import JOB_CRD, RAYCLUSTERS
from integration.clusters import APIS, cluster_with_operator
from integration.embedded_cluster import PATIENCE_S, until
from raytide_sandbox.kubeconfig import build_kubeconfig, write_private
from support.builders import group, raycluster, template
from support.plane_admin import PlaneAdmin
from support.training_builders import trainingjob

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.rule("SC:S21")]

SECRET = "hunter2-of-the-test"


async def diagnose(kubeconfig, path, *words):
    """Exit code, output, errors, and the files of the bundle by their path in its folder."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raytide", "diagnose", "-o", str(path), "--kubeconfig", str(kubeconfig), *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    files = {}
    if process.returncode == 0:
        with tarfile.open(path) as tar:
            files = {each.name.partition("/")[2]: tar.extractfile(each).read().decode() for each in tar}
    return process.returncode, out.decode(), err.decode(), files


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=APIS)
async def cluster(request, tmp_path_factory):
    async with cluster_with_operator(request, tmp_path_factory.mktemp("operator")) as cluster:
        yield cluster


@pytest.fixture
def namespace(cluster):
    name = f"diagnose-{secrets.token_hex(3)}"
    cluster.ensure_namespace(name)
    return name


def with_secrets(namespace):
    """An autoscaled RayCluster that has the secret wherever users put one."""
    pods = template("ray-worker", args=["train", f"--password={SECRET}", SECRET])
    pods["spec"]["containers"][0]["env"] = [
        {"name": "REDIS_PASSWORD", "value": SECRET},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "mine"}}},
    ]
    obj = raycluster(group(replicas=1, template=pods), namespace=namespace, enableInTreeAutoscaling=True)
    obj["metadata"]["annotations"] = {"example.com/note": SECRET}
    obj["spec"]["headGroupSpec"].setdefault("rayStartParams", {})["redis-password"] = SECRET
    return obj


async def test_the_bundle_has_what_the_operator_made_and_no_secret(cluster, namespace, tmp_path):
    cluster.apply(with_secrets(namespace))
    await until("both pods exist", lambda: len(cluster.names(namespace)) == 2)
    cluster.make_ready(namespace)
    cluster.create("secrets", {"metadata": {"name": "tokens", "namespace": namespace}, "stringData": {"mine": SECRET}})
    cluster.create("configmaps", {"metadata": {"name": "mine", "namespace": namespace}, "data": {"mine": SECRET}})
    await until("it is ready", lambda: cluster.status(namespace, "demo").get("state") == "ready")
    path = tmp_path / "bundle.tar.gz"
    code, out, err, files = await diagnose(cluster.kubeconfig, path, "demo", "-n", namespace)
    assert (code, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600), err
    assert out.startswith(f"{path}: {len(files)} files, ")
    folder = f"namespaces/{namespace}/raycluster-demo"
    found = {file: json.loads(text) for file, text in files.items() if file.endswith(".json")}
    assert {pod["metadata"]["name"] for pod in found[f"{folder}/pods.json"]} == cluster.names(namespace)
    assert [each["metadata"]["name"] for each in found[f"{folder}/services.json"]] == ["demo-head-svc"]
    for file in ("service-accounts", "roles", "role-bindings"):
        assert [each["metadata"]["name"] for each in found[f"{folder}/{file}.json"]] == ["demo"]
    assert found[f"{folder}/why.json"]["object"]["name"] == "demo"
    assert {"CreatedHeadPod", "CreatedWorkerPod"} <= {each["reason"] for each in found[f"{folder}/events.json"]}
    assert found["versions.json"]["kubernetes"]["gitVersion"]
    assert {each["metadata"]["name"] for each in found["definitions.json"]} >= {"rayclusters.ray.io"}
    assert found["nodes.json"]
    worker = next(
        pod for pod in found[f"{folder}/pods.json"] if pod["metadata"]["labels"]["ray.io/node-type"] == "worker"
    )
    env = {each["name"]: each for each in worker["spec"]["containers"][0]["env"]}
    assert env["TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "tokens", "key": "mine"}}
    assert env["REDIS_PASSWORD"]["value"].startswith("<redacted ")
    assert env["RAY_CLUSTER_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['ray.io/cluster']"
    assert not [file for file, text in files.items() if SECRET in text or "hunter2" in text]

    code, out, err, _ = await diagnose(cluster.kubeconfig, path, "demo", "-n", namespace)
    assert (code, out, err) == (1, "", f"Error: {path} exists: name another file by -o, or pass --force\n")
    assert (await diagnose(cluster.kubeconfig, path, "-n", namespace, "--force", "--no-logs"))[0] == 0


async def test_a_name_that_does_not_exist(cluster, namespace, tmp_path):
    code, out, err, _ = await diagnose(cluster.kubeconfig, tmp_path / "a", "nothing", "-n", namespace)
    assert (code, out) == (1, "")
    assert err.startswith(
        f"Error: there is no RayCluster or TrainingJob nothing in namespace {namespace}: it has neither"
    )
    assert not list(tmp_path.iterdir())


async def test_nothing_is_written_to_the_cluster(cluster, namespace, tmp_path):
    cluster.apply(raycluster(group(replicas=0), namespace=namespace))
    await until("the head exists", lambda: len(cluster.names(namespace)) == 1)
    cluster.make_ready(namespace)
    await until("it is ready", lambda: cluster.status(namespace, "demo").get("state") == "ready")
    before = cluster.get(RAYCLUSTERS, namespace, "demo")["metadata"]["resourceVersion"]
    code, _, err, files = await diagnose(cluster.kubeconfig, tmp_path / "a", "-n", namespace)
    assert (code, "README.txt" in files) == (0, True), err
    assert cluster.get(RAYCLUSTERS, namespace, "demo")["metadata"]["resourceVersion"] == before


# --- with the rights of one namespace --------------------------------------------------------------------------------------

KINDS = {"ray.io": "rayclusters", "paddlepaddle.org": "trainingjobs"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited(kube_plane, tmp_path_factory):
    """Kubeconfig of a token that may read workloads and pods of one namespace, that namespace, and another one."""
    async with PlaneAdmin(kube_plane.server, kube_plane.authority, kube_plane.admin_token) as admin:
        await admin.install_crd()
        await admin.install_crd(JOB_CRD)
    mine, other = kube_plane.new_namespace("mine"), kube_plane.new_namespace("other-team")
    jobs = "/apis/paddlepaddle.org/v1/namespaces/{}/trainingjobs"
    for where, name in ((mine, "job-of-mine"), (other, "job-of-another-team")):
        job = trainingjob(name=name, namespace=where, trainer={"entrypoint": f"train {SECRET}"})
        job["metadata"] = {"name": name}
        kube_plane.create(jobs.format(where), job)
    rules = [
        {"apiGroups": list(KINDS), "resources": list(KINDS.values()), "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    token = kube_plane.token_of_role(mine, rules, jobs.format(mine))
    kubeconfig = tmp_path_factory.mktemp("diagnose") / "kubeconfig"
    write_private(kubeconfig, build_kubeconfig(server=kube_plane.server, authority=kube_plane.authority, token=token))
    return kubeconfig, mine, other


@pytest.mark.kube
@pytest.mark.rule("FD:SEC-F7")
async def test_a_token_of_one_namespace_gets_that_namespace_and_the_list_of_missing_rights(limited, tmp_path):
    kubeconfig, mine, other = limited
    code, _, err, files = await diagnose(kubeconfig, tmp_path / "a", "-n", mine)
    assert code == 0, err
    assert {file.split("/")[2] for file in files if file.startswith(f"namespaces/{mine}/")} == {
        "trainingjob-job-of-mine"
    }
    for right in (
        f"may not list events in namespace {mine}: ",
        f"may not list configmaps in namespace {mine}: ",
        f"may not list resourcequotas in namespace {mine}: ",
        f"may not list services in namespace {mine}: ",
        "may not list nodes cluster-wide: ",
        "may not list deployments.apps cluster-wide: ",
    ):
        assert f"  {right}" in files["README.txt"]
        assert f"not read: {right}" in err
    everything = "".join(files.values()) + err
    for hidden in (other, "job-of-another-team", SECRET):
        assert hidden not in everything


@pytest.mark.kube
async def test_without_the_right_to_the_workloads_it_is_one_line(limited, tmp_path):
    kubeconfig, _, other = limited
    code, out, err, _ = await diagnose(kubeconfig, tmp_path / "a", "-n", other)
    assert (code, out, err.count("\n"), list(tmp_path.iterdir())) == (1, "", 1, []), err
    assert err.startswith("Error: rayclusters cannot be listed: ")

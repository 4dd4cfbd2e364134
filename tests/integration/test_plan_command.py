"""`raytide plan` reads a running cluster, as a process, and writes nothing: on the embedded API and a real one.

The node of these tests has a label that only their job asks for, so that whatever else lives in a shared cluster neither
gives nor takes room.
"""

import asyncio
import json
import secrets
import sys

import pytest
import pytest_asyncio

from integration.cluster_under_test import JOB_CRD, MERGE, TRAININGJOBS, path_of
from integration.clusters import APIS, new_cluster
from integration.embedded_cluster import until
from raytide.api import trainingjob_constants as constants
from support import plan_snapshots
from support.deadlines import PATIENCE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.rule("TJ:7.15")]

LABEL = "plan-test"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=APIS)
async def cluster(request):
    cluster = new_cluster(request)
    await cluster.start()
    if cluster.request("GET", "/apis/paddlepaddle.org/v1/trainingjobs", limit="1")[0] != 200:
        cluster.install_crd(JOB_CRD)
    cluster.own_node = cluster.add_node("planned", cpu="4", memory="64Gi")
    body = {"metadata": {"labels": {LABEL: cluster.own_node}}}
    cluster.done("PATCH", path_of("nodes", "", cluster.own_node), body, content_type=MERGE)
    yield cluster
    await cluster.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def namespace(cluster):
    """With one job of 1 to 8 that has one trainer, on a node with capacity for three more."""
    name = f"plan-{secrets.token_hex(3)}"
    cluster.ensure_namespace(name)
    made = cluster.create(TRAININGJOBS, job(cluster, "a", 1, 8, name))
    pod = plan_snapshots.trainer_pod("a", 0, on=cluster.own_node)
    pod["metadata"] |= {"namespace": name}
    owner = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": "a", "uid": made["metadata"]["uid"]}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    del pod["status"]
    cluster.create("pods", pod)
    yield name
    cluster.delete(name, "a", TRAININGJOBS)
    cluster.request("DELETE", path_of("pods", name, "a-trainer-0"), {"gracePeriodSeconds": 0})
    await until("its pod is gone", lambda: not cluster.pods(name))


def job(cluster, name, floor, ceiling, namespace, **trainer):
    made = plan_snapshots.job(name, floor, ceiling, namespace=namespace)
    made["metadata"] = {"name": name, "namespace": namespace}
    made["spec"]["trainer"] |= {"entrypoint": "true", "nodeSelector": {LABEL: cluster.own_node}, **trainer}
    made["spec"] |= {"image": "busybox", "scaling": {"accounting": "Requests"}}  # sums are the whole cluster's
    return made


async def plan(kubeconfig, *words: str, stdin: str = ""):
    """Exit code, output and complaints of `raytide plan`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raytide", "plan", "--kubeconfig", str(kubeconfig), *words,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 60 * PATIENCE)
    return process.returncode, out.decode(), err.decode()


async def test_a_running_cluster_is_planned_and_nothing_is_written(cluster, namespace, tmp_path):
    before = cluster.get(TRAININGJOBS, namespace, "a")["metadata"]["resourceVersion"]
    code, out, err = await plan(cluster.write_kubeconfig(tmp_path / "kubeconfig"), "-o", "json")
    assert code == 0, err
    (ours,) = [each for each in json.loads(out)["resizes"] if each["namespace"] == namespace]
    assert (ours["kind"], ours["name"], ours["from"], ours["to"], ours["reason"]) == (
        "TrainingJob",
        "a",
        1,
        4,
        "Growing",
    )
    assert cluster.get(TRAININGJOBS, namespace, "a")["metadata"]["resourceVersion"] == before
    assert not cluster.writes


async def test_what_if_in_a_running_cluster(cluster, namespace, tmp_path):
    new = plan_snapshots.as_documents(job(cluster, "c", 2, 2, namespace))
    kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
    code, out, err = await plan(kubeconfig, "--submit", "-", stdin=new)
    assert code == 0, err
    assert f"  {namespace}/c starts with 2 of 2 to 2\n  {namespace}/a grows by 2 less (1 -> 2, not 4)\n" in out
    assert cluster.request("GET", path_of(TRAININGJOBS, namespace, "c"))[0] == 404


async def test_a_job_of_which_no_pod_is_there_is_not_assumed_to_run(cluster, namespace, tmp_path):
    """The plan uses the existing pods: a job that starts grows when its pods exist."""
    cluster.create(TRAININGJOBS, job(cluster, "b", 1, 8, namespace))
    kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
    code, out, err = await plan(kubeconfig, "-o", "json")
    cluster.delete(namespace, "b", TRAININGJOBS)
    assert code == 0, err
    output = json.loads(out)
    assert {each["name"] for each in output["resizes"] if each["namespace"] == namespace} == {"a"}
    reasons = {each["name"]: each["reason"] for each in output["waiting"] if each["namespace"] == namespace}
    assert reasons["b"] == "CoolingDown"


async def test_the_label_is_the_operators(cluster, namespace):
    """The pods of these tests are those that the product looks for."""
    labels = cluster.get("pods", namespace, "a-trainer-0")["metadata"]["labels"]
    assert {constants.JOB_LABEL, constants.ROLE_LABEL, constants.INDEX_LABEL} <= labels.keys()

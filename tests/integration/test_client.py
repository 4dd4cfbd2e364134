"""The Python client beside the real operator, on the embedded API and on a real one: what a script or a notebook does with it."""

import asyncio
import json
import os
import re
import secrets
import sys
from pathlib import Path

import pytest
import pytest_asyncio

import raytide
from integration.cluster_under_test import RAYCLUSTERS
from integration.clusters import APIS, cluster_with_operator
from integration.embedded_cluster import PATIENCE_S, until
from support.builders import group, raycluster

pytestmark = [pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=APIS)
async def cluster(request, tmp_path_factory):
    async with cluster_with_operator(request, tmp_path_factory.mktemp("operator")) as cluster:
        yield cluster


@pytest.fixture
def there(cluster):
    """Arguments of a workload in a namespace of its own."""
    namespace = f"client-{secrets.token_hex(3)}"
    cluster.ensure_namespace(namespace)
    return {"namespace": namespace, "kubeconfig": cluster.kubeconfig}


def groups_of(obj):
    return {one["groupName"]: one.get("replicas") for one in obj["spec"]["workerGroupSpecs"]}


async def ready_after(cluster, namespace, pods):
    """Make the pods ready once there are so many."""
    await until("all pods exist", lambda: len(cluster.names(namespace)) == pods)
    cluster.make_ready(namespace)


async def test_a_cluster_is_applied_waited_for_scaled_explained_and_deleted(cluster, there):
    namespace = there["namespace"]
    demo = raytide.aio.RayCluster("demo", workers=2, **there)
    assert await demo.apply() is demo
    waiting = asyncio.create_task(demo.wait(PATIENCE_S))
    await ready_after(cluster, namespace, 3)
    status = await waiting
    assert (status.wanted, status.ready, status.is_ready, status.reason) == (2, 2, True, "")
    assert (await demo.why()).verdict == "NothingMissing"

    await demo.scale(3)
    await until("the third worker exists", lambda: len(cluster.names(namespace)) == 4)
    why = await demo.why()
    assert (why.verdict, why.explanation.wanted) == ("Waits", 3)
    assert "demo" in str(why)
    with pytest.raises(raytide.WaitTimeoutError, match=r"RayCluster demo is not ready after 0.5 s: .*2 of 3 ready"):
        await demo.wait(0.5)

    await demo.delete()
    assert await demo.wait(PATIENCE_S, until="deleted") is None
    await demo.delete()
    with pytest.raises(raytide.NotFoundError, match=f"there is no RayCluster demo in namespace {namespace}"):
        await demo.get()


async def test_applying_again_keeps_the_sizes_that_an_autoscaler_wrote(cluster, there):
    demo = raytide.aio.RayCluster("demo", workers=1, max_workers=9, **there)
    await demo.apply()

    def grow(obj):
        obj["spec"]["workerGroupSpecs"][0]["replicas"] = 4

    cluster.edit(there["namespace"], "demo", grow, RAYCLUSTERS)
    again = raytide.aio.RayCluster("demo", workers=2, max_workers=12, **there)
    await again.apply()
    stored = await again.get()
    (workers,) = stored["spec"]["workerGroupSpecs"]
    assert (workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (4, 2, 12)
    assert {entry["manager"] for entry in stored["metadata"]["managedFields"]} >= {"raytide-python"}


async def test_groups_are_scaled_by_name_and_an_unknown_one_is_named(cluster, there):
    cluster.apply(raycluster(group("a", 1), group("b", 1), name="theirs", namespace=there["namespace"]))
    theirs = raytide.aio.RayCluster("theirs", **there)
    await theirs.scale({"b": 3})
    assert groups_of(await theirs.get()) == {"a": 1, "b": 3}
    with pytest.raises(ValueError, match="it has no worker group c; its groups are a, b"):
        await theirs.scale({"c": 1})
    with pytest.raises(ValueError, match=r"it has 2 worker groups: give sizes by group, such as a=1 b=1"):
        await theirs.scale(1)


async def test_a_deleted_cluster_ends_a_wait(cluster, there):
    demo = raytide.aio.RayCluster("demo", workers=1, **there)
    await demo.apply()
    waiting = asyncio.create_task(demo.wait(PATIENCE_S))
    await until("the head exists", lambda: cluster.names(there["namespace"]))
    await demo.delete()
    with pytest.raises(raytide.WorkloadFailedError, match="there is no RayCluster demo"):
        await waiting


async def test_an_object_that_the_api_server_rejects_is_an_error_with_its_message(cluster, there):
    demo = raytide.aio.RayCluster(
        "demo",
        manifest={"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "demo"}, "spec": {}},
        **there,
    )
    with pytest.raises(raytide.WorkloadError, match=r"RayCluster demo: .*headGroupSpec"):
        await demo.apply()


async def test_a_job_is_applied_scaled_and_explained(cluster, there):
    job = raytide.aio.TrainingJob(
        "demo", image="i", entrypoint="true", trainers=(1, 4), cpus=0.1, memory="16Mi", **there
    )
    await job.apply()
    await until("its pods exist", lambda: cluster.names(there["namespace"]))
    status = await job.status()
    assert (status.is_ready, status.is_finished) == (False, False)
    await job.scale(3)
    assert (await job.get())["spec"]["trainer"]["replicas"] == 3
    assert (await job.why()).explanation.kind == "TrainingJob"
    with pytest.raises(ValueError, match="must not be negative"):
        await job.scale(-1)
    await job.delete()
    assert await job.wait(PATIENCE_S, until="deleted") is None


async def scale(cluster, there, *words):
    """Exit code and output of `raytide scale`."""
    where = ("-n", there["namespace"], "--kubeconfig", str(cluster.kubeconfig))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "raytide",
        "scale",
        *words,
        *where,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    return process.returncode, out.decode()


async def test_the_command_scales_groups_and_waits(cluster, there):
    namespace = there["namespace"]
    cluster.apply(raycluster(group("a", 1), group("b", 1), name="demo", namespace=namespace))
    await until("all pods exist", lambda: len(cluster.names(namespace)) == 3)
    scaling = asyncio.create_task(scale(cluster, there, "demo", "a=2", "b=0", "--wait", "--timeout", str(PATIENCE_S)))
    await until("group a has two workers", lambda: sum("-a-worker-" in name for name in cluster.names(namespace)) == 2)
    cluster.make_ready(namespace)
    code, out = await scaling
    assert code == 0, out
    assert out.startswith(f"RayCluster {namespace}/demo: a 2, b 0 requested\nRayCluster {namespace}/demo: ")
    code, out = await scale(cluster, there, "demo", "c=1")
    assert (code, out.endswith("Error: it has no worker group c; its groups are a, b\n")) == (2, True), out


async def test_the_command_says_who_may_change_the_number_again(cluster, there):
    await raytide.aio.RayCluster("auto", workers=0, max_workers=4, **there).apply()
    code, out = await scale(cluster, there, "auto", "2")
    assert (code, "Ray's autoscaler may change the number again" in out) == (0, True), out
    await raytide.aio.TrainingJob(
        "job", image="i", entrypoint="true", trainers=(1, 4), cpus=0.1, memory="16Mi", **there
    ).apply()
    code, out = await scale(cluster, there, "tj/job", "3")
    assert (code, "fair sharing may change the number again" in out) == (0, True), out
    code, out = await scale(cluster, there, "tj/job", "2", "-o", "json")
    assert code == 0, out
    assert json.loads(out) == {
        "kind": "TrainingJob",
        "namespace": there["namespace"],
        "name": "job",
        "requested": 2,
        "controlledBy": "fair-sharing",
        "bounded": [],
        "note": "fair sharing may change the number again, within the capacity and the bounds of the job",
        "reached": "",
        "error": "",
    }
    code, out = await scale(cluster, there, "tj/job", "a=3")
    assert (code, "has no worker groups: give the number of trainers" in out) == (2, True), out
    code, out = await scale(cluster, there, "nothing", "1")
    assert (code, "there is no RayCluster or TrainingJob nothing" in out) == (1, True), out


async def test_the_example_of_the_documentation(cluster, tmp_path):
    """As a script: without an event loop, and with the namespace of the kubeconfig."""
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    (program,), (shown,) = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "text"))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        await ready_after(cluster, "default", 3)
        out, _ = await asyncio.wait_for(process.communicate(), 2 * PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert out.decode() == shown

"""A driver requests more than the cluster has, and workers are launched; without demand they are removed.

The second part of the story: the sample with autoscaling becomes a cluster of two groups, of which the second is asked
only when the first is full. Demand comes from tasks, an actor, a placement group and `request_resources`, in drivers on
the head; real Ray answers. The time-out for idle workers is short here, so that no test waits a minute.
"""

import json
import subprocess
import time
from datetime import datetime

import pytest

from cluster import PATIENCE, CommandError, eventually, get, kubectl, names, within
from scenario import (
    EXPLAINED_WITHIN_S,
    condition_of,
    everything,
    exec_args,
    head_of,
    in_head,
    is_documented,
    wait_for_workers,
    why,
    workers,
)

CLUSTER = "autoscaled"
IDLE_S = 8
FIRST, SECOND = "cpu", "reserve"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
KILLS = 5

PRELUDE = """
import ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
"""

# The tasks look into the GCS's key-value store: a task that waits in `ray.get` releases its CPU, so that one worker could
# take both tasks and the third worker were idle.
BURST = f"""{PRELUDE}
import time
from ray.experimental.internal_kv import _internal_kv_get

@ray.remote(num_cpus=1)
class Actor:
    def where(self):
        return ray.get_runtime_context().get_node_id()

@ray.remote(num_cpus=1)
def where():
    while _internal_kv_get(b"e2e-finish") is None:
        time.sleep(0.2)
    return ray.get_runtime_context().get_node_id()

actor = Actor.remote()
tasks = [where.remote() for _ in range(2)]
print("asked", time.time(), flush=True)
nodes = ray.get([actor.where.remote(), *tasks])
print("nodes:", len(set(nodes)))
"""

FINISH = f"""{PRELUDE}
from ray.experimental.internal_kv import _internal_kv_put
_internal_kv_put(b"%s", b"now")
"""

SPREAD = f"""{PRELUDE}
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

group = placement_group([{{"CPU": 1}}] * 3, strategy="STRICT_SPREAD")
ray.get(group.ready())

@ray.remote(num_cpus=1)
def where():
    return ray.get_runtime_context().get_node_id()

strategies = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i) for i in range(3)]
print("nodes:", len(set(ray.get([where.options(scheduling_strategy=each).remote() for each in strategies]))))
"""

REQUEST = f"""{PRELUDE}
from ray.autoscaler.sdk import request_resources
request_resources(bundles=[{{"CPU": 1}}] * %d)
"""

REQUEST_AND_LISTEN = """
import time
import ray
from ray.autoscaler.sdk import request_resources
ray.init(address="auto", logging_level="ERROR")
request_resources(bundles=[{"CPU": 1}] * %d)
time.sleep(%d)
"""
"""What the driver prints meanwhile is what the autoscaler has written for drivers."""

MORE_THAN_CAN_RUN = f"""{PRELUDE}
import time
from ray.experimental.internal_kv import _internal_kv_get

@ray.remote(num_cpus=1)
def wait():
    time.sleep(600)

@ray.remote(num_cpus=0, resources={{"TPU": 1}})
def on_tpu():
    pass

waiting = [*(wait.remote() for _ in range(6)), on_tpu.remote()]
print("asked", flush=True)
while _internal_kv_get(b"e2e-enough") is None:
    time.sleep(0.2)
"""
"""Its tasks end with it; a program in a pod outlives the `kubectl exec` that started it."""

SIGNAL_GCS = """
import os, pathlib, signal, sys
for entry in pathlib.Path("/proc").iterdir():
    try:
        program = (entry / "cmdline").read_bytes().split(bytes(1))[0]
    except OSError:
        continue
    if program.endswith(b"/gcs_server"):
        os.kill(int(entry.name), signal.Signals[sys.argv[1]])
        print("sent")
"""

DEAD_AND_ALIVE = f"""{PRELUDE}
import json
nodes = ray.nodes()
print(json.dumps([sum(node["Alive"] for node in nodes), [node["DeathReason"] for node in nodes if not node["Alive"]]]))
"""
DRAINED_IDLE = 4
"""`AUTOSCALER_DRAIN_IDLE` among Ray's reasons why a node died."""

KILL_LOOP = """
import os, pathlib, signal, sys, time

def loops():
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(bytes(1))
        except OSError:
            continue
        if b"raytide.autoscaler.sidecar.main" in words and sys.argv[2].encode() in words:
            yield int(entry.name)

killed = set()
while len(killed) < int(sys.argv[1]):
    for loop in set(loops()) - killed:
        os.kill(loop, signal.SIGKILL)
        killed.add(loop)
    time.sleep(0.05)
print("killed:", len(killed))
"""
END_FIRST_PROCESS = """
import os, pathlib, signal, sys
for entry in pathlib.Path("/proc").iterdir():
    try:
        words = (entry / "cmdline").read_bytes().split(bytes(1))
    except OSError:
        continue
    if {b"autoscaler", b"--cluster-name", b"--cluster-namespace", sys.argv[1].encode()} <= set(words):
        os.kill(int(entry.name), signal.SIGTERM)
"""


@pytest.fixture(scope="module")
def manifest(installation):
    """The sample, as a person in a hurry would change it."""
    sample = installation.sample.with_name("raycluster-autoscaler.yaml")
    args = ("--dry-run=client", "-o", "json", "-n", installation.ray_namespace)
    made = json.loads(kubectl("create", *args, "-f", str(sample)))
    made["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] = IDLE_S
    (group,) = made["spec"]["workerGroupSpecs"]
    reserve = {**group, "groupName": SECOND, "priority": 1}
    made["spec"]["workerGroupSpecs"] = [{**group, "priority": 10, "maxReplicas": 3}, reserve]
    return made


def started_at(pod):
    """Since when a pod's first container runs, in Unix time, to the second."""
    (status,) = pod["status"]["containerStatuses"]
    return datetime.fromisoformat(status["state"]["running"]["startedAt"]).timestamp()


def group_sizes(pods):
    found = [pod["metadata"]["labels"]["ray.io/group"] for pod in pods]
    return {group: found.count(group) for group in sorted(set(found))}


def replicas(installation):
    cluster = get("raycluster", CLUSTER, installation.ray_namespace)
    return {group["groupName"]: group["replicas"] for group in cluster["spec"]["workerGroupSpecs"]}


def ray_status(installation, *args, deadline_s=30):
    """Wait until the output of `ray status` on the head contains all of these."""

    def check():
        try:
            output = in_head(installation, CLUSTER, "ray", "status")
        except CommandError as error:
            return False, error
        return all(word in output for word in args), output

    eventually(check, f"`ray status` says {args}", deadline_s)


def driver(installation, program, deadline_s=120):
    return in_head(installation, CLUSTER, "python", "-c", program, deadline_s=deadline_s)


# --- there is no demand --------------------------------------------------------------------------------------------------


def test_a_cluster_without_demand_is_a_head_alone(installation, manifest):
    kubectl("apply", "-n", installation.ray_namespace, "-f", "-", stdin=json.dumps(manifest))
    kubectl(
        "wait", "-n", installation.ray_namespace, "--for=condition=HeadPodReady",
        f"raycluster/{CLUSTER}", f"--timeout={within(150)}", deadline_s=160,
    )  # fmt: skip
    ray_status(installation, "1 headgroup", "(no pending nodes)")
    assert workers(installation, CLUSTER) == []


def test_the_autoscaler_is_the_operators_program_with_an_account_of_its_own(installation):
    spec = head_of(installation, CLUSTER)["spec"]
    (sidecar,) = spec["initContainers"]  # a native sidecar: with version v2 the pod restarts no other container
    assert (sidecar["name"], sidecar["restartPolicy"], spec["restartPolicy"]) == ("autoscaler", "Always", "Never")
    assert sidecar["image"] == installation.image
    assert spec["serviceAccountName"] == CLUSTER
    rules = get("role", CLUSTER, installation.ray_namespace)["rules"]
    assert [rule.get("resourceNames") for rule in rules if "rayclusters" in rule["resources"]] == [[CLUSTER]]


def test_the_token_is_mounted_in_the_autoscaler_only(installation):
    spec = head_of(installation, CLUSTER)["spec"]
    mounts = {
        each["name"]
        for each in (*spec["containers"], *spec["initContainers"])
        for m in each["volumeMounts"]
        if TOKEN.startswith(m["mountPath"])
    }
    assert mounts == {"autoscaler"}
    check = ("python", "-c", f"import os; print(os.path.exists({TOKEN!r}))")
    assert in_head(installation, CLUSTER, *check, container="autoscaler").strip() == "True"
    assert in_head(installation, CLUSTER, *check).strip() == "False"


# --- demand --------------------------------------------------------------------------------------------------------------


def test_tasks_and_an_actor_launch_workers_while_the_autoscaler_is_killed_repeatedly(installation, figures):
    args = exec_args(installation, CLUSTER, "ray-head")
    with subprocess.Popen(
        ["kubectl", *args, "python", "-c", BURST], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as burst:
        try:
            word, asked_at = burst.stdout.readline().split()
            assert word == "asked"
            kill = ("python", "-c", KILL_LOOP, str(KILLS), installation.ray_namespace)
            output = in_head(installation, CLUSTER, *kill, container="autoscaler", deadline_s=120)
            assert f"killed: {KILLS}" in output
            pods = wait_for_workers(installation, CLUSTER, 3, deadline_s=90)
            assert group_sizes(pods) == {FIRST: 3}, "the group of the higher priority"
            first_s = min(map(started_at, pods)) - float(asked_at)
            figures.append(
                f"autoscaling: the first worker runs {first_s:.0f} s after tasks wait for it, with five kills"
            )
            ray_status(installation, f"3 {FIRST}", "(no pending nodes)")
            driver(installation, FINISH % "e2e-finish")
            output, _ = burst.communicate(timeout=60 * PATIENCE)
        finally:
            burst.kill()
    assert "nodes: 3" in output
    status = head_of(installation, CLUSTER)["status"]
    statuses = (*status["containerStatuses"], *status["initContainerStatuses"])
    assert {each["name"]: each["restartCount"] for each in statuses} == {
        "ray-head": 0,
        "autoscaler": 0,
    }, "it starts itself again"


def test_the_kubelet_restarts_the_container_of_the_autoscaler_and_no_other(installation):
    head = head_of(installation, CLUSTER)["metadata"]["name"]
    end = exec_args(installation, CLUSTER, "autoscaler")
    # It may end with the container that it runs in.
    subprocess.run(["kubectl", *end, "python", "-c", END_FIRST_PROCESS, installation.ray_namespace], check=False)
    for path, value in (("restartCount", "1"), ("ready", "true")):
        kubectl(
            "wait", "-n", installation.ray_namespace, f"pod/{head}", f"--timeout={within(60)}",
            f'--for=jsonpath={{.status.initContainerStatuses[?(@.name=="autoscaler")].{path}}}={value}', deadline_s=70,
        )  # fmt: skip
    assert head_of(installation, CLUSTER)["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_placement_group_is_spread_over_three_workers(installation):
    assert "nodes: 3" in driver(installation, SPREAD)


def test_what_is_requested_stays_until_it_is_taken_back(installation):
    listener = REQUEST_AND_LISTEN % (4, 60 * PATIENCE)
    args = exec_args(installation, CLUSTER, "ray-head")
    with subprocess.Popen(
        ["kubectl", *args, "python", "-c", listener], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as listening:
        try:
            line = next((line for line in listening.stdout if f"node(s) of type {SECOND}" in line), "")
        finally:
            listening.kill()
    assert "(autoscaler +" in line, "the driver gets the autoscaler's messages"
    pods = wait_for_workers(installation, CLUSTER, 4, deadline_s=90)
    assert group_sizes(pods) == {FIRST: 3, SECOND: 1}, "the first group is full"
    assert replicas(installation) == {FIRST: 3, SECOND: 1}
    ray_status(installation, f"3 {FIRST}", f"1 {SECOND}")


# --- why not more (SC:S21) -----------------------------------------------------------------------------------------------


def explained(installation, reason, condition="ScalingLimited", meanwhile=lambda: None):
    """The blocker of that reason, once `raytide why` and the condition name it with the same holder and fix."""

    def check():
        meanwhile()
        _, answer = why(installation, CLUSTER)
        reported = condition_of(installation, CLUSTER, condition).get("message", "")
        found = next((each for each in answer["blockers"] if each["reason"] == reason), None)
        is_so = found and f"held by: {found['holder']}; fix: {found['cure']}" in reported
        return found if is_so else None, (answer["blockers"], reported)

    blocker = eventually(check, f"`raytide why` and {condition} name {reason}", 30)
    assert is_documented(installation, blocker), blocker
    return blocker


def no_longer_limited(installation):
    eventually(
        lambda: (not condition_of(installation, CLUSTER, "ScalingLimited"), why(installation, CLUSTER)),
        "ScalingLimited is gone", 30,
    )  # fmt: skip


def test_why_names_the_group_at_its_maximum_and_the_task_that_no_group_can_run(installation, figures):
    """All four workers that the groups may have run: the second group gets a maximum of one."""
    limit = [{"op": "replace", "path": "/spec/workerGroupSpecs/1/maxReplicas", "value": 1}]
    namespace = installation.ray_namespace
    kubectl("patch", "raycluster", CLUSTER, "-n", namespace, "--type=json", "-p", json.dumps(limit))
    args = exec_args(installation, CLUSTER, "ray-head")
    with subprocess.Popen(
        ["kubectl", *args, "python", "-c", MORE_THAN_CAN_RUN],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as asking:
        try:
            assert asking.stdout.readline() == "asked\n"
            began = time.monotonic()
            nowhere = explained(installation, "NoFittingGroup")
            explained_s = time.monotonic() - began
            figures.append(f"why: {explained_s:.1f} s from a task that no group can run to its explanation")
            assert explained_s < EXPLAINED_WITHIN_S * PATIENCE
            full = explained(installation, "MaxReached")
            driver(installation, FINISH % "e2e-enough")
            asking.wait(timeout=60 * PATIENCE)
        finally:
            asking.kill()
    assert (nowhere["permanent"], nowhere["holder"]) == (True, "the worker groups in the spec")
    assert "{TPU: 1} x 1 fit no group" in nowhere["message"]
    assert (full["permanent"], full["holder"].partition(" of group ")[0]) == (False, "maxReplicas")
    assert group_sizes(workers(installation, CLUSTER)) == {FIRST: 3, SECOND: 1}


def test_why_names_the_head_while_the_gcs_does_not_answer(installation):
    signal_gcs = ("python", "-c", SIGNAL_GCS)
    assert "sent" in in_head(installation, CLUSTER, *signal_gcs, "SIGSTOP")
    try:
        down = explained(installation, "HeadDown")
    finally:
        assert "sent" in in_head(installation, CLUSTER, *signal_gcs, "SIGCONT")
    assert (down["holder"], down["permanent"]) == ("the head pod", False)
    no_longer_limited(installation)
    ray_status(installation, f"3 {FIRST}", f"1 {SECOND}")


def test_why_names_the_client_that_also_writes_replicas(installation):
    """Its number is lower than the autoscaler's, which is written again: no worker is deleted."""
    before = names(workers(installation, CLUSTER))

    def write_as_argocd(number):
        body = json.dumps([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": number}])
        args = ("-n", installation.ray_namespace, "--type=json", "--field-manager=argocd", "-p", body)
        kubectl("patch", "raycluster", CLUSTER, *args)

    rival = explained(installation, "ReplicasRewritten", "ReplicasContended", lambda: write_as_argocd(2))
    assert rival["holder"] == "argocd, which also writes replicas"
    assert names(workers(installation, CLUSTER)) == before
    write_as_argocd(3)


# --- and no demand -------------------------------------------------------------------------------------------------------


def test_idle_workers_are_drained_and_gone(installation, figures):
    driver(installation, REQUEST % 0)
    began = time.monotonic()

    def check():
        left = names(workers(installation, CLUSTER))
        wanted = replicas(installation)
        return not left and not any(wanted.values()), (wanted, sorted(left))

    eventually(check, "no worker is left, and none is wanted", IDLE_S + 60)
    gone_s = time.monotonic() - began
    figures.append(f"autoscaling: idle workers are gone {gone_s:.1f} s after the last request, {IDLE_S} s of them idle")
    alive, reasons = json.loads(driver(installation, DEAD_AND_ALIVE).splitlines()[-1])
    assert alive == 1
    assert set(reasons) == {DRAINED_IDLE}, "each was asked to leave before its pod went"
    assert len(reasons) >= 4
    ray_status(installation, "1 headgroup", "(no pending nodes)")


def test_all_objects_of_a_deleted_cluster_are_deleted(installation):
    kubectl("delete", "raycluster", CLUSTER, "-n", installation.ray_namespace, f"--timeout={within(60)}", deadline_s=70)
    kinds = ("rayclusters", "pods", "services", "serviceaccounts", "roles", "rolebindings")

    def check():
        left = list(everything(installation.ray_namespace, *kinds))
        return not left, left

    eventually(check, "nothing is left of the RayCluster", 60)

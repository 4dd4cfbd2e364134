"""Nodes are drained and the chart is upgraded while two Ray clusters run, with two replicas of the operator.

The fourth part of the story, on clusters with two nodes for pods (kind); with one it is skipped. What is asserted: only the
pods that a drain evicts are replaced, one operator is Ready at any time, another replica takes the lease of a leader that
goes, and neither a change of leaders nor an upgrade to another image touches a Ray pod.
"""

import json
import subprocess
import time

import pytest

from cluster import CommandError, eventually, get, helm, is_ready, kubectl, listed, names, setting, uids, within
from scenario import head_of, in_head, of_cluster, operator_pods, wait_for_workers, workers

CLUSTER = "autoscaled"
PLAIN = "sample"
WORKERS = 2
HOSTNAME = "kubernetes.io/hostname"
LEASE = "ray-operator-leader"
COUNT = """
import ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
print("alive:", sum(node["Alive"] for node in ray.nodes()))
"""


@pytest.fixture(scope="module")
def nodes():
    """Names of the first two nodes that take pods."""
    found = [
        node["metadata"]["name"]
        for node in listed("nodes")
        if not any(taint["effect"] == "NoSchedule" for taint in node["spec"].get("taints", []))
    ]
    if len(found) < 2:
        pytest.skip("the cluster has one node for pods")
    return sorted(found)[:2]


@pytest.fixture(scope="module")
def heads_node(nodes):
    """Heads are here, and whatever else is to survive a drain of the other node."""
    return nodes[0]


@pytest.fixture(scope="module")
def workers_node(nodes):
    """Workers prefer this node; it is the one that is drained."""
    return nodes[1]


def sample(installation, file, heads_node, workers_node):
    """A sample whose head is on one node, and whose workers prefer the other one but may be on both."""
    args = ("--dry-run=client", "-o", "json", "-n", installation.ray_namespace)
    made = json.loads(kubectl("create", *args, "-f", str(installation.sample.with_name(file))))
    made["spec"]["headGroupSpec"]["template"]["spec"]["nodeSelector"] = {HOSTNAME: heads_node}
    (group,) = made["spec"]["workerGroupSpecs"]
    group |= {"replicas": WORKERS, "minReplicas": WORKERS}
    term = {"key": HOSTNAME, "operator": "In", "values": [workers_node]}
    preference = {"weight": 100, "preference": {"matchExpressions": [term]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    group["template"]["spec"]["affinity"] = affinity
    for container in (
        *group["template"]["spec"]["containers"],
        *made["spec"]["headGroupSpec"]["template"]["spec"]["containers"],
    ):
        container["resources"]["requests"]["cpu"] = "500m"
    return made


def ray_pods(installation):
    """All pods of both clusters."""
    found = [pod for name in (CLUSTER, PLAIN) for pod in listed("pods", installation.ray_namespace, of_cluster(name))]
    assert len(found) == 2 * (1 + WORKERS)
    return found


def containers(pods):
    """Each container of these pods with its restarts: equal as long as nothing has touched them."""
    return {
        (pod["metadata"]["name"], pod["metadata"]["uid"], each["name"], each["restartCount"])
        for pod in pods
        for each in (*pod["status"]["containerStatuses"], *pod["status"].get("initContainerStatuses", []))
    }


def leader(installation):
    """Name of the operator's pod that holds the lease; empty while none does."""
    holder = get("lease", LEASE, installation.namespace)["spec"].get("holderIdentity")
    pods = operator_pods(installation)
    return next((pod["metadata"]["name"] for pod in pods if pod["metadata"]["uid"] == holder), "")


def other_leader(installation, before, deadline_s):
    """The leader after that one; how long it took."""
    started = time.monotonic()

    def check():
        found = leader(installation)
        return (found if found and found != before else ""), found

    return eventually(check, f"another leader than {before}", deadline_s), time.monotonic() - started


def ready_operators(installation, count, deadline_s):
    """So many operators, all of them Ready."""

    def check():
        pods = operator_pods(installation)
        ready = [pod for pod in pods if is_ready(pod)]
        return (pods if len(pods) == len(ready) == count else []), f"{len(ready)} of {len(pods)} operators ready"

    return eventually(check, f"{count} ready operators", deadline_s)


def drain(node, *args, deadline_s=120):
    words = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={within(deadline_s)}")
    return kubectl("drain", node, *words, *args, deadline_s=deadline_s + 10)


def on_node(pods, node):
    return {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == node}


@pytest.fixture
def uncordoned(nodes):
    """Nodes take pods again after the test, however it ends."""
    yield
    for node in nodes:
        kubectl("uncordon", node)


# --- two replicas and two clusters ---------------------------------------------------------------------------------------


def test_two_replicas_are_on_two_nodes_and_have_a_disruption_budget(installation, nodes):
    helm(
        "upgrade", installation.release, str(installation.chart), "-n", installation.namespace,
        "--reuse-values", "--set", "replicas=2", "--wait", "--timeout", within(90),
    )  # fmt: skip
    pods = ready_operators(installation, 2, deadline_s=45)
    assert {pod["spec"]["nodeName"] for pod in pods} == set(nodes)
    budget = get("poddisruptionbudget", installation.release, installation.namespace)
    assert budget["spec"]["maxUnavailable"] == 1
    # A replica is ready before it leads: the lease of the pod that the upgrade replaced may be free at this moment.
    assert other_leader(installation, "", deadline_s=45)


def test_two_ray_clusters_run(installation, heads_node, workers_node):
    for file in ("raycluster-autoscaler.yaml", "raycluster.yaml"):
        made = sample(installation, file, heads_node, workers_node)
        kubectl("apply", "-n", installation.ray_namespace, "-f", "-", stdin=json.dumps(made))
    for cluster in (CLUSTER, PLAIN):
        pods = wait_for_workers(installation, cluster, WORKERS, deadline_s=180)
        assert on_node(pods, workers_node) == names(pods)
        assert is_ready(head_of(installation, cluster))
        assert head_of(installation, cluster)["spec"]["nodeName"] == heads_node


# --- a worker's node -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("uncordoned")
def test_pods_of_a_drained_node_are_replaced_and_no_others(installation, workers_node, figures):
    before = {cluster: workers(installation, cluster) for cluster in (CLUSTER, PLAIN)}
    heads = [head_of(installation, cluster) for cluster in before]
    # The operator stays: this is about workers.
    drain(workers_node, "--pod-selector=!app.kubernetes.io/instance")
    started = time.monotonic()
    for cluster, old in before.items():
        pods = wait_for_workers(installation, cluster, WORKERS, deadline_s=120, without=min(names(old)))
        assert not names(pods) & names(old)
        assert on_node(pods, workers_node) == set()
        after = head_of(installation, cluster)
        assert containers([after]) <= containers(heads)

        def check(cluster=cluster):
            output = in_head(installation, cluster, "python", "-c", COUNT)
            return f"alive: {1 + WORKERS}" in output, output

        eventually(check, f"Ray has a head and {WORKERS} workers", 60)
    took_s = time.monotonic() - started
    restarts = sum(count for *_, count in containers(ray_pods(installation)))
    figures.append(
        f"{took_s:6.1f} s from the end of a drain to all workers of two clusters in Ray again; containers were restarted {restarts} times"
    )


# --- leaders -------------------------------------------------------------------------------------------------------------


def test_another_replica_leads_when_the_leader_is_deleted(installation, workers_node, figures):
    before = ray_pods(installation)
    for _ in range(3):  # until the leader is on the node that the next test drains
        old = leader(installation)
        kubectl("delete", "pod", old, "-n", installation.namespace, "--wait=false")
        new, took_s = other_leader(installation, old, deadline_s=45)
        figures.append(f"{took_s:6.1f} s from the order to delete the leader to the next one")
        pods = ready_operators(installation, 2, deadline_s=60)
        if new in on_node(pods, workers_node):
            break
    assert new in on_node(operator_pods(installation), workers_node)
    after = ray_pods(installation)
    assert containers(after) == containers(before)


@pytest.mark.usefixtures("uncordoned")
def test_one_operator_is_ready_at_any_time_while_the_leaders_node_is_drained(
    installation, heads_node, workers_node, figures
):
    old = leader(installation)
    before = ray_pods(installation)
    started = time.monotonic()
    words = ["--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={within(120)}"]
    fewest = 2
    with subprocess.Popen(
        ["kubectl", "drain", workers_node, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as draining:
        while draining.poll() is None:
            fewest = min(fewest, sum(map(is_ready, operator_pods(installation))))
        output = draining.stdout.read()
    assert draining.returncode == 0, output
    figures.append(f"{time.monotonic() - started:6.1f} s to drain the node of the leader")
    assert fewest >= 1
    new, _ = other_leader(installation, old, deadline_s=45)
    # The scheduler spreads replicas as far as it can: with one node left, both are there.
    pods = ready_operators(installation, 2, deadline_s=60)
    assert on_node(pods, heads_node) == names(pods)
    assert new in names(pods)
    assert uids(ray_pods(installation)) == uids(before), "no Ray pod was on that node"


def test_the_new_leader_reconciles(installation):
    lost = min(names(workers(installation, PLAIN)))
    kubectl("delete", "pod", lost, "-n", installation.ray_namespace, "--wait=false")
    wait_for_workers(installation, PLAIN, WORKERS, deadline_s=90, without=lost)


@pytest.mark.usefixtures("uncordoned")
def test_the_disruption_budget_rejects_the_eviction_of_the_last_ready_operator(installation, heads_node, workers_node):
    kubectl("cordon", workers_node)
    kubectl("cordon", heads_node)  # now an evicted replica has no node
    first, second = sorted(names(operator_pods(installation)))
    evict(installation, first)

    def check():
        found = [pod["metadata"]["name"] for pod in operator_pods(installation) if is_ready(pod)]
        return found == [second], found

    eventually(check, f"only {second} is ready", 60)
    with pytest.raises(CommandError, match="violate the pod's disruption budget"):
        evict(installation, second)
    assert is_ready(get("pod", second, installation.namespace))


def evict(installation, name):
    """Evict a pod as `kubectl drain` does, without trying again."""
    path = f"/api/v1/namespaces/{installation.namespace}/pods/{name}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


# --- upgrade -------------------------------------------------------------------------------------------------------------


def test_an_upgrade_to_another_image_touches_no_ray_pod(installation, figures):
    ready_operators(installation, 2, deadline_s=60)
    image = setting("RAYTIDE_E2E_NEXT_IMAGE") or installation.image
    _, _, tag = image.rpartition(":")
    before = ray_pods(installation)
    old = names(operator_pods(installation))
    started = time.monotonic()
    helm(
        "upgrade", installation.release, str(installation.chart), "-n", installation.namespace, "--reuse-values",
        "--set-string", f"image.tag={tag}", "--set", "podAnnotations.upgraded=yes", "--wait", "--timeout", within(120),
    )  # fmt: skip
    figures.append(f"{time.monotonic() - started:6.1f} s to upgrade two replicas to another image")
    pods = ready_operators(installation, 2, deadline_s=60)
    assert not names(pods) & old
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {image}
    new, _ = other_leader(installation, "", deadline_s=45)
    # What the new leader does, it has done when it has replaced a worker.
    lost = min(names(workers(installation, PLAIN)))
    kubectl("delete", "pod", lost, "-n", installation.ray_namespace, "--wait=false")
    wait_for_workers(installation, PLAIN, WORKERS, deadline_s=90, without=lost)
    after = ray_pods(installation)
    assert names(before) - names(after) == {lost}
    assert containers(after) >= containers(pod for pod in before if pod["metadata"]["name"] != lost)
    assert new in names(operator_pods(installation))


def test_one_replica_is_left_for_what_follows(installation):
    for cluster in (CLUSTER, PLAIN):
        kubectl(
            "delete", "raycluster", cluster, "-n", installation.ray_namespace, f"--timeout={within(60)}", deadline_s=70
        )
    helm(
        "upgrade", installation.release, str(installation.chart), "-n", installation.namespace,
        "--reuse-values", "--set", "replicas=1", "--wait", "--timeout", within(90),
    )  # fmt: skip
    ready_operators(installation, 1, deadline_s=45)

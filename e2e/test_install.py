"""A person installs the chart, runs a Ray cluster, changes things, breaks things and clears up.

One story in order: each test goes on where the one before it ended, and none makes sense when an earlier one failed (the
suite stops there). What is asserted is the state of the world, waited for with a deadline; how often somebody was called
to reach it is nobody's business here.
"""

import json
import time

import pytest

import audit
from cluster import eventually, get, helm, is_ready, kubectl, listed, names, uids, within
from installation import Installation

CLUSTER = "sample"
OF_CLUSTER = f"ray.io/cluster={CLUSTER}"
WORKERS = f"{OF_CLUSTER},ray.io/node-type=worker"
HEAD = f"{OF_CLUSTER},ray.io/node-type=head"

COUNT_NODES = """
import ray
ray.init(address="auto", log_to_driver=False)
print("alive:", sum(node["Alive"] for node in ray.nodes()))
"""

JOB = """
import ray
ray.init(address="auto", log_to_driver=False)

@ray.remote(num_cpus=0.1)
def square(x):
    return x * x

print("sum:", sum(ray.get([square.remote(x) for x in range(10)])))
"""


def workers(installation: Installation) -> list[dict]:
    return listed("pods", installation.ray_namespace, WORKERS)


def wait_for_workers(installation: Installation, count: int, deadline_s: float, *, without: str = "") -> list[dict]:
    """So many workers, all of them ready, and not the one named."""

    def look():
        pods = workers(installation)
        ready = [pod for pod in pods if is_ready(pod)]
        is_so = len(pods) == len(ready) == count and without not in names(pods)
        return pods if is_so else [], f"{len(ready)} of {len(pods)} workers ready: {sorted(names(pods))}"

    return eventually(look, f"{count} ready workers", deadline_s)


def scale(installation: Installation, replicas: int) -> None:
    patch = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": replicas}]
    where = ["-n", installation.ray_namespace]
    kubectl("patch", "raycluster", CLUSTER, *where, "--type=json", "-p", json.dumps(patch))


def in_head(installation: Installation, *words: str, deadline_s: float = 60.0) -> str:
    (head,) = listed("pods", installation.ray_namespace, HEAD)
    return kubectl(
        "exec", "-n", installation.ray_namespace, head["metadata"]["name"], "--", *words, deadline_s=deadline_s
    )


def operator_pods(installation: Installation) -> list[dict]:
    return listed("pods", installation.namespace, installation.of_release)


def may(installation: Installation, verb: str, resource: str, *words: str) -> bool:
    """Whether the operator's service account may do this, as the API server sees it."""
    resource, _, subresource = resource.partition("/")
    words += (f"--subresource={subresource}",)
    try:
        answer = kubectl("auth", "can-i", verb, resource, "--as", installation.user, *words)
    except AssertionError as refused:
        if "no\n" not in str(refused):
            raise
        return False
    return answer.startswith("yes")


# --- install -------------------------------------------------------------------------------------------------------------


def test_wrong_values_are_refused_before_anything_is_installed(installation):
    with pytest.raises(AssertionError, match="/reconcileConcurrency"):
        helm(
            "install", installation.release, str(installation.chart), "-n", installation.namespace,
            "--set", "reconcileConcurrency=0",
        )  # fmt: skip
    assert listed("deployments", installation.namespace) == []


def test_helm_installs_an_operator_that_gets_ready(installation):
    helm(
        "install", installation.release, str(installation.chart), "-n", installation.namespace,
        *installation.image_values, "--wait", "--timeout", within(90),
    )  # fmt: skip
    deployment = get("deployment", installation.release, installation.namespace)
    assert deployment["status"]["readyReplicas"] == 1
    assert "rayclusters.ray.io" in names(listed("crds"))


def test_the_operator_is_a_pod_with_its_own_account_and_short_lived_token(installation):
    (pod,) = operator_pods(installation)
    assert is_ready(pod)
    assert pod["spec"]["serviceAccountName"] == installation.release
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    sources = [s for v in pod["spec"]["volumes"] for s in v["projected"]["sources"]]
    assert [s["serviceAccountToken"]["expirationSeconds"] for s in sources if "serviceAccountToken" in s] == [3600]
    log = kubectl("logs", "-n", installation.namespace, pod["metadata"]["name"])
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("verb", "resource", "where"),
    [
        ("get", "secrets", "own"),
        ("list", "secrets", "everywhere"),
        ("create", "pods/exec", "ray"),
        ("patch", "rayclusters", "ray"),
        ("delete", "rayclusters", "ray"),
        ("update", "pods", "ray"),
        ("create", "clusterrolebindings", "everywhere"),
        ("create", "roles", "ray"),
        ("escalate", "clusterroles", "everywhere"),
        ("create", "serviceaccounts/token", "own"),
        ("patch", "nodes", "everywhere"),
        ("update", "leases", "ray"),
        ("create", "validatingwebhookconfigurations", "everywhere"),
        ("impersonate", "users", "everywhere"),
    ],
)
def test_the_operator_may_not(installation, verb, resource, where):
    words = {
        "own": ["-n", installation.namespace],
        "ray": ["-n", installation.ray_namespace],
        "everywhere": ["--all-namespaces"],
    }
    assert not may(installation, verb, resource, *words[where])


def test_the_operator_may_do_its_work(installation):
    """Otherwise the refusals above would only say that the question was wrong."""
    assert may(installation, "create", "pods", "-n", installation.ray_namespace)
    roles = listed("clusterroles", selector=installation.of_release)
    roles += listed("roles", selector=installation.of_release)
    for role in roles:
        if role["metadata"].get("namespace", installation.namespace) == installation.namespace:
            installation.granted |= audit.granted(role["rules"])
    assert "create pods" in installation.granted


# --- a Ray cluster -------------------------------------------------------------------------------------------------------


def test_the_sample_becomes_a_ray_cluster(installation):
    kubectl("apply", "-n", installation.ray_namespace, "-f", str(installation.sample))
    kubectl(
        "wait", "-n", installation.ray_namespace, "--for=condition=RayClusterProvisioned",
        f"raycluster/{CLUSTER}", f"--timeout={within(150)}", deadline_s=160,
    )  # fmt: skip
    assert len(wait_for_workers(installation, 2, deadline_s=5)) == 2
    cluster = get("raycluster", CLUSTER, installation.ray_namespace)
    assert cluster["status"]["state"] == "ready"
    assert "finalizers" not in cluster["metadata"]


def test_it_is_real_ray(installation):
    assert "alive: 3" in in_head(installation, "python", "-c", COUNT_NODES)
    assert "sum: 285" in in_head(installation, "python", "-c", JOB)


def test_events_tell_what_happened(installation):
    told = kubectl("describe", "raycluster", CLUSTER, "-n", installation.ray_namespace)
    for reason in ("CreatedService", "CreatedHeadPod", "CreatedWorkerPod"):
        assert reason in told


def test_two_workers_become_three(installation):
    before = uids(workers(installation))
    scale(installation, 3)
    assert before < uids(wait_for_workers(installation, 3, deadline_s=60))


def test_a_deleted_worker_is_replaced(installation):
    lost = min(names(workers(installation)))
    kubectl("delete", "pod", lost, "-n", installation.ray_namespace, "--wait=false")
    wait_for_workers(installation, 3, deadline_s=60, without=lost)


# --- upgrade -------------------------------------------------------------------------------------------------------------


def test_a_changed_setting_rolls_the_operator_and_touches_no_ray_pod(installation):
    (before,) = operator_pods(installation)
    ray_before = uids(listed("pods", installation.ray_namespace, OF_CLUSTER))
    helm(
        "upgrade", installation.release, str(installation.chart), "-n", installation.namespace,
        "--reuse-values", "--set", "logLevel=debug", "--wait", "--timeout", within(90),
    )  # fmt: skip

    def look():
        pods = operator_pods(installation)
        return (pods if len(pods) == 1 else []), f"{len(pods)} operator pods"

    (after,) = eventually(look, "the old operator is gone", 45)
    assert is_ready(after)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert "--log-level=debug" in after["spec"]["containers"][0]["args"]
    pods = listed("pods", installation.ray_namespace, OF_CLUSTER)
    assert uids(pods) == ray_before
    assert [s["restartCount"] for pod in pods for s in pod["status"]["containerStatuses"]] == [0] * len(pods)


def test_the_new_operator_acts(installation, figures):
    started = time.monotonic()
    scale(installation, 1)
    wait_for_workers(installation, 1, deadline_s=45)
    figures.append(
        f"{time.monotonic() - started:6.1f} s from the order to scale down to the last Ray pod gone, after an upgrade"
    )


# --- delete --------------------------------------------------------------------------------------------------------------


def test_a_deleted_ray_cluster_leaves_nothing(installation):
    kubectl("delete", "raycluster", CLUSTER, "-n", installation.ray_namespace, f"--timeout={within(60)}", deadline_s=70)

    def look():
        left = [
            f"{kind}/{name}"
            for kind in ("rayclusters", "pods", "services")
            for name in names(listed(kind, installation.ray_namespace))
        ]
        return not left, left

    eventually(look, "nothing is left of the RayCluster", 60)


# --- what was asked for --------------------------------------------------------------------------------------------------


def test_nothing_was_forbidden(installation, audit_log):
    asked = audit.requests_of(audit_log, installation.user)
    assert asked, f"the audit log does not know {installation.user}"
    assert audit.forbidden(asked) == []


def test_every_right_is_used_or_explained(installation, audit_log, figures):
    used = audit.counted(audit.requests_of(audit_log, installation.user))
    for right in sorted(installation.granted):
        because = audit.UNUSED_BECAUSE.get(right, "nobody knows why it is granted")
        figures.append(f"{used[right]:6d}  {right}{'' if used[right] else ': ' + because}")
    unused = {right for right in installation.granted if not used[right]}
    assert unused <= set(audit.UNUSED_BECAUSE)
    assert set(audit.UNUSED_BECAUSE) <= installation.granted
    assert set(used) <= installation.granted


# --- uninstall ----------------------------------------------------------------------------------------------------------


def test_uninstall_leaves_nothing_but_the_crd(installation):
    helm("uninstall", installation.release, "-n", installation.namespace, "--wait", "--timeout", within(60))

    def look():
        left = [
            f"{kind}/{obj['metadata']['name']}"
            for kind in ("deployments", "replicasets", "pods", "services", "leases", "roles", "rolebindings", "secrets")
            for obj in listed(kind, installation.namespace)
        ]
        left += [
            f"{kind}/{name}"
            for kind in ("clusterroles", "clusterrolebindings")
            for name in names(listed(kind, selector=installation.of_release))
        ]
        left += [f"serviceaccounts/{n}" for n in names(listed("serviceaccounts", installation.namespace)) - {"default"}]
        return not left, left

    eventually(look, "nothing is left of the release", 60)
    assert "rayclusters.ray.io" in names(listed("crds"))

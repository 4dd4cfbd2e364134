"""A user installs the chart, runs a Ray cluster, changes it, breaks it and deletes it.

One story in order: each test goes on where the one before it ended, and none makes sense when an earlier one failed (the
suite stops there). What is asserted is the state of the world, waited for with a deadline; the number of calls
that it takes is not asserted.
"""

import json
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

import audit
from cluster import CommandError, eventually, forwarded, get, helm, is_ready, kubectl, listed, names, run, uids, within
from installation import Installation
from scenario import everything, in_head, may, of_cluster, operator_pods, wait_for_workers, workers

CLUSTER = "sample"

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


def scale(installation: Installation, replicas: int) -> None:
    patch = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": replicas}]
    where = ["-n", installation.ray_namespace]
    kubectl("patch", "raycluster", CLUSTER, *where, "--type=json", "-p", json.dumps(patch))


# --- install -------------------------------------------------------------------------------------------------------------


def test_wrong_values_are_rejected_before_anything_is_installed(installation):
    with pytest.raises(AssertionError, match="/reconcileConcurrency"):
        helm(
            "install", installation.release, str(installation.chart), "-n", installation.namespace,
            "--set", "reconcileConcurrency=0",
        )  # fmt: skip
    assert listed("deployments", installation.namespace) == []


def test_the_commands_of_the_readme_install_an_operator_that_gets_ready(installation):
    build, push, install, _ = installation.documented_commands
    assert (build[:2], push[:2]) == (["docker", "build"], ["docker", "push"]), "make image takes their place"
    began = time.monotonic()
    run(*install, "--timeout", within(90), deadline_s=120)
    installation.install_s = time.monotonic() - began
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


def test_helm_test_reaches_the_operator_and_leaves_nothing(installation):
    output = helm("test", installation.release, "-n", installation.namespace, "--timeout", within(90))
    assert "Phase:          Succeeded" in output
    assert not any(name.endswith("-test") for name in names(listed("services", installation.namespace)))


@pytest.mark.parametrize(
    ("verb", "resource", "where"),
    [
        ("get", "secrets", "own"),
        ("list", "secrets", "everywhere"),
        ("create", "pods/exec", "ray"),
        ("create", "rayclusters", "ray"),
        ("delete", "rayclusters", "ray"),
        ("update", "pods", "ray"),
        ("create", "clusterroles", "everywhere"),
        ("create", "clusterrolebindings", "everywhere"),
        ("escalate", "clusterroles", "everywhere"),
        ("escalate", "roles", "ray"),
        ("bind", "clusterroles", "everywhere"),
        ("bind", "roles", "ray"),
        ("patch", "roles", "ray"),
        ("update", "roles", "ray"),
        ("patch", "rolebindings", "ray"),
        ("patch", "serviceaccounts", "ray"),
        ("create", "serviceaccounts/token", "ray"),
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
    """Otherwise the rejections above could have another cause."""
    assert may(installation, "create", "pods", "-n", installation.ray_namespace)
    roles = listed("clusterroles", selector=installation.of_release)
    roles += listed("roles", selector=installation.of_release)
    for role in roles:
        is_for_users = any("aggregate-to-" in label for label in role["metadata"]["labels"])
        if not is_for_users and role["metadata"].get("namespace", installation.namespace) == installation.namespace:
            installation.granted |= audit.granted(role["rules"])
    assert "create pods" in installation.granted


def test_users_with_kubernetes_own_roles_have_the_kinds(installation):
    for role, verb, is_allowed in (("view", "list", True), ("view", "create", False), ("edit", "create", True)):
        binding = {
            "apiVersion": ROLE,
            "kind": "RoleBinding",
            "metadata": {"name": f"e2e-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"e2e-{role}"}],
        }
        kubectl("apply", "-n", installation.ray_namespace, "-f", "-", stdin=json.dumps(binding))
        for kind in ("rayclusters.ray.io", "trainingjobs.paddlepaddle.org"):

            def check(verb=verb, kind=kind, role=role, is_allowed=is_allowed):
                answer = may(installation, verb, kind, "-n", installation.ray_namespace, user=f"e2e-{role}")
                return answer == is_allowed, answer

            eventually(check, f"{role} may {'' if is_allowed else 'not '}{verb} {kind}", 15)
    # A later test asserts that nothing but the namespace's own objects is left.
    kubectl("delete", "rolebindings", "e2e-view", "e2e-edit", "-n", installation.ray_namespace)


ROLE = "rbac.authorization.k8s.io/v1"


def make_as_operator(installation, manifest):
    """A dry run on the API server."""
    words = ["--as", installation.user, "--dry-run=server", "-n", installation.ray_namespace, "-f", "-"]
    return kubectl("create", *words, stdin=json.dumps({"apiVersion": ROLE, "metadata": {"name": "tried"}, **manifest}))


def role(*verbs, group="", resource):
    return {"kind": "Role", "rules": [{"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}]}


def binding(kind, name):
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    return {"kind": "RoleBinding", "roleRef": reference, "subjects": [{"kind": "ServiceAccount", "name": "default"}]}


def test_the_operator_passes_on_what_autoscalers_need(installation):
    make_as_operator(installation, role("get", "patch", group="ray.io", resource="rayclusters"))
    make_as_operator(installation, role("get", "list", "watch", resource="pods"))


@pytest.mark.parametrize(
    "permission",
    [
        role("get", resource="secrets"),
        role("update", resource="pods"),
        role("create", resource="pods/exec"),
        role("delete", group="ray.io", resource="rayclusters"),
        role("*", resource="*"),
        role("escalate", group="rbac.authorization.k8s.io", resource="roles"),
        binding("ClusterRole", "cluster-admin"),
        binding("ClusterRole", "edit"),
    ],
    ids=[
        "secrets",
        "update pods",
        "exec",
        "delete clusters",
        "everything",
        "escalate",
        "bind to admin",
        "bind to edit",
    ],
)
def test_the_operator_passes_on_nothing_that_it_has_not(installation, permission):
    with pytest.raises(CommandError, match="attempting to grant RBAC permissions not currently held"):
        make_as_operator(installation, permission)


# --- a Ray cluster -------------------------------------------------------------------------------------------------------


def test_the_sample_becomes_a_ray_cluster(installation, figures):
    *_, apply = installation.documented_commands
    began = time.monotonic()
    run(*apply, "-n", installation.ray_namespace)
    kubectl(
        "wait", "-n", installation.ray_namespace, "--for=condition=RayClusterProvisioned",
        f"raycluster/{CLUSTER}", f"--timeout={within(150)}", deadline_s=160,
    )  # fmt: skip
    ready_s, install_s = time.monotonic() - began, installation.install_s
    figures.append(
        f"helm install: the operator is ready after {install_s:.1f} s, a first RayCluster {ready_s:.1f} s after it is "
        f"applied; {install_s + ready_s:.1f} s in all"
    )
    assert len(wait_for_workers(installation, CLUSTER, 2, deadline_s=5)) == 2
    cluster = get("raycluster", CLUSTER, installation.ray_namespace)
    assert cluster["status"]["state"] == "ready"
    assert "finalizers" not in cluster["metadata"]


def test_it_is_real_ray(installation):
    assert "alive: 3" in in_head(installation, CLUSTER, "python", "-c", COUNT_NODES)
    assert "sum: 285" in in_head(installation, CLUSTER, "python", "-c", JOB)


def test_describe_shows_the_events_of_the_raycluster(installation):
    output = kubectl("describe", "raycluster", CLUSTER, "-n", installation.ray_namespace)
    for reason in ("CreatedService", "CreatedHeadPod", "CreatedWorkerPod"):
        assert reason in output


def test_two_workers_become_three(installation):
    before = uids(workers(installation, CLUSTER))
    scale(installation, 3)
    assert before < uids(wait_for_workers(installation, CLUSTER, 3, deadline_s=60))


def test_a_deleted_worker_is_replaced(installation):
    lost = min(names(workers(installation, CLUSTER)))
    kubectl("delete", "pod", lost, "-n", installation.ray_namespace, "--wait=false")
    wait_for_workers(installation, CLUSTER, 3, deadline_s=60, without=lost)


# --- upgrade -------------------------------------------------------------------------------------------------------------


def test_a_changed_setting_rolls_the_operator_and_touches_no_ray_pod(installation):
    make_crds_old()
    (before,) = operator_pods(installation)
    ray_before = uids(listed("pods", installation.ray_namespace, of_cluster(CLUSTER)))
    helm(
        "upgrade", installation.release, str(installation.chart), "-n", installation.namespace,
        "--reset-then-reuse-values", "--set", "logLevel=debug", "--wait", "--timeout", within(90),
    )  # fmt: skip

    def check():
        pods = operator_pods(installation)
        return (pods if len(pods) == 1 else []), f"{len(pods)} operator pods"

    (after,) = eventually(check, "the old operator is gone", 45)
    assert is_ready(after)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert "--log-level=debug" in after["spec"]["containers"][0]["args"]
    pods = listed("pods", installation.ray_namespace, of_cluster(CLUSTER))
    assert uids(pods) == ray_before
    assert [s["restartCount"] for pod in pods for s in pod["status"]["containerStatuses"]] == [0] * len(pods)


COLUMNS = "{.spec.versions[0].additionalPrinterColumns[*].name}"


def make_crds_old():
    """As an older chart would have installed them: one lacks fields, the other one did not exist yet."""
    removal = [{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}]
    kubectl("patch", "crd", "rayclusters.ray.io", "--type=json", "-p", json.dumps(removal))
    kubectl("delete", "crd", "trainingjobs.paddlepaddle.org", f"--timeout={within(30)}", deadline_s=35)


def test_the_upgrade_has_upgraded_the_crds_and_its_rights_are_gone(installation):
    columns = kubectl("get", "crd", "rayclusters.ray.io", "-o", f"jsonpath={COLUMNS}").split()
    assert {"workers", "status", "age"} <= set(columns)
    assert "trainingjobs.paddlepaddle.org" in names(listed("crds"))
    assert not any(
        name.endswith("-crds") for kind in ("clusterroles", "clusterrolebindings") for name in names(listed(kind))
    )
    assert not any(name.endswith("-crds") for name in names(listed("serviceaccounts", installation.namespace)))


def test_the_new_operator_acts(installation, figures):
    started = time.monotonic()
    scale(installation, 1)
    wait_for_workers(installation, CLUSTER, 1, deadline_s=45)
    figures.append(
        f"{time.monotonic() - started:6.1f} s from the order to scale down to the last Ray pod gone, after an upgrade"
    )


# --- the page ------------------------------------------------------------------------------------------------------------


def answer_of(address: str, token: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON of a request with that token."""
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_page_shows_a_developer_the_namespace_that_the_token_may_list(installation, figures):
    (before,) = operator_pods(installation)
    helm(
        "upgrade", installation.release, str(installation.chart), "-n", installation.namespace,
        "--reset-then-reuse-values", "--set", "ui.enabled=true", "--wait", "--timeout", within(90),
    )  # fmt: skip
    assert uids(operator_pods(installation)) == {before["metadata"]["uid"]}
    where = installation.ray_namespace
    kubectl("create", "serviceaccount", "dev", "-n", where)
    kubectl("create", "rolebinding", "dev", "--clusterrole=view", f"--serviceaccount={where}:dev", "-n", where)
    token = kubectl("create", "token", "dev", "-n", where).strip()
    with forwarded(installation.namespace, f"service/{installation.release}-ui", 8250) as address:
        started = time.monotonic()

        def check():
            status, found = answer_of(f"http://{address}/api/lanes?namespace={where}", token)
            return [each["name"] for each in found.get("items", ())] == [CLUSTER], (status, found)

        eventually(
            check, "the page shows the cluster", 40
        )  # aggregated rights arrive late, and an answer holds for 30 s
        figures.append(f"{time.monotonic() - started:6.1f} s until the page shows the cluster to a new account")
        status, found = answer_of(f"http://{address}/api/lanes?namespace={installation.namespace}", token)
        assert (status, "the token may not list" in found["error"]) == (403, True)
        status, found = answer_of(f"http://{address}/api/why/RayCluster/{where}/{CLUSTER}?namespace={where}", token)
        assert (status, found["object"]["name"]) == (200, CLUSTER)
        assert answer_of(f"http://{address}/api/lanes?namespace={where}", "expired")[0] == 401
    kubectl("delete", "serviceaccount/dev", "rolebinding/dev", "-n", where)


# --- delete --------------------------------------------------------------------------------------------------------------


def test_a_deleted_ray_cluster_leaves_nothing(installation):
    kubectl("delete", "raycluster", CLUSTER, "-n", installation.ray_namespace, f"--timeout={within(60)}", deadline_s=70)

    def check():
        left = list(everything(installation.ray_namespace, "rayclusters", "pods", "services"))
        return not left, left

    eventually(check, "nothing is left of the RayCluster", 60)

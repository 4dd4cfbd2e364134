"""The chart as users install it who may create nothing cluster-scoped: with Roles only, and for RayClusters only.

A second release, under another name, so that the audit log tells its requests from those of the first. The CRDs are there from
the parts before, as an administrator would have installed them.
"""

import dataclasses

import pytest

import audit
from cluster import eventually, get, helm, kubectl, listed, names, within
from scenario import everything, may, of_cluster, operator_pods

OPTIONAL = {"list nodes"}
"""What has no namespace: the operator tries it and works without."""


@pytest.fixture(scope="module")
def restricted(installation):
    """The release of this part."""
    return dataclasses.replace(installation, release="raytide-single", granted=set())


def test_helm_installs_it_without_any_cluster_scoped_object(restricted):
    helm(
        "install", restricted.release, str(restricted.chart), "-n", restricted.namespace, "--skip-crds",
        *restricted.image_values, "--set", f"singleNamespaceInstall=true,watchNamespace={{{restricted.ray_namespace}}}",
        "--set", "trainingJob.enabled=false",
        "--wait", "--timeout", within(90),
    )  # fmt: skip
    manifest = helm("get", "manifest", restricted.release, "-n", restricted.namespace)
    assert "kind: Role\n" in manifest
    assert "kind: Cluster" not in manifest
    assert "kind: ValidatingAdmission" not in manifest


def test_it_has_rights_in_its_namespaces_only(restricted):
    assert may(restricted, "create", "pods", "-n", restricted.ray_namespace)
    assert not may(restricted, "create", "pods", "-n", restricted.namespace)
    assert not may(restricted, "create", "pods", "-n", "default")
    assert not may(restricted, "list", "nodes", "--all-namespaces")
    for right in ("trainingjobs.paddlepaddle.org", "configmaps", "resourcequotas"):
        assert not may(restricted, "list", right, "-n", restricted.ray_namespace)


def test_an_autoscaled_ray_cluster_gets_its_pods_and_the_rights_of_its_autoscaler(restricted):
    """The pods are created and the status is written; that they become Ray is the same in every mode, see the parts before."""
    kubectl(
        "apply", "-n", restricted.ray_namespace, "-f", str(restricted.sample.with_name("raycluster-autoscaler.yaml"))
    )
    (cluster,) = listed("rayclusters", restricted.ray_namespace)
    name = cluster["metadata"]["name"]

    def check():
        pods = listed("pods", restricted.ray_namespace, of_cluster(name, "head"))
        status = get("raycluster", name, restricted.ray_namespace).get("status", {})
        made = {
            kind: names(listed(kind, restricted.ray_namespace)) for kind in ("serviceaccounts", "roles", "rolebindings")
        }
        is_so = (
            len(pods) == 1 and status.get("head", {}).get("podName") and all(name in found for found in made.values())
        )
        return is_so, (names(pods), status, made)

    eventually(check, "a head pod and the rights of its autoscaler", 60)
    kubectl("delete", "raycluster", name, "-n", restricted.ray_namespace, f"--timeout={within(60)}", deadline_s=70)

    def is_gone():
        left = names(listed("pods", restricted.ray_namespace)) | names(
            listed("rolebindings", restricted.ray_namespace)
        ) & {name}
        return not left, left

    eventually(is_gone, "the pods and the rights of its autoscaler are gone", 60)


def test_its_requests_were_permitted_but_for_what_it_does_without(restricted, audit_log):
    (pod,) = operator_pods(restricted)
    log = kubectl("logs", "-n", restricted.namespace, pod["metadata"]["name"])
    assert "Traceback" not in log
    asked = audit.requests_of(audit_log, restricted.user)
    assert audit.counted(asked)["create pods"]
    rejected = {line.partition(":")[0] for line in audit.forbidden(asked)}
    assert rejected <= OPTIONAL
    assert not [right for right in audit.counted(asked) if "trainingjobs" in right or "configmaps" in right]


def test_uninstall_leaves_nothing(restricted):
    helm("uninstall", restricted.release, "-n", restricted.namespace, "--wait", "--timeout", within(60))

    def check():
        kinds = ("deployments", "pods", "services", "leases", "roles", "rolebindings", "serviceaccounts", "secrets")
        left = list(everything(restricted.namespace, *kinds)) + list(
            everything(restricted.ray_namespace, "roles", "pods")
        )
        return not left, left

    eventually(check, "nothing is left of the release", 60)

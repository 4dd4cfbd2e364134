"""Questions about admission: quota, limits, terminating namespaces, policies, unknown classes."""

from typing import Any

from integration.probe.client import Client, cluster, eventually, pod
from integration.probe.transcript import Transcript

Json = dict[str, Any]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def rejections_by_a_quota(ask: Transcript) -> None:
    client = ask.client
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    client.post(f"{client.core}/resourcequotas", quota)
    _until_counted(client, "q")
    client.new_pod("first")
    ask.note("one pod too many", client.new_pod("second"), only=lambda _: "taken")
    client.delete(f"{client.core}/resourcequotas/q")
    quota |= {"metadata": {"name": "cpu"}, "spec": {"hard": {"requests.cpu": "1"}}}
    client.post(f"{client.core}/resourcequotas", quota)
    _until_counted(client, "cpu")
    ask.note("a pod that asks for nothing", client.new_pod("third"), only=lambda _: "taken")


def rejections_by_a_limit_range(ask: Transcript) -> None:
    client = ask.client
    limits = [{"type": "Container", "max": {"cpu": "1"}}]
    obj = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": limits}}
    client.post(f"{client.core}/limitranges", obj)
    wanted = pod("large")
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "4"}}

    def is_counted() -> bool:
        is_rejected = client.post(client.pods, wanted, dryRun="All").status == 403
        return is_rejected or client.endpoint.is_embedded

    eventually(is_counted, "the limits hold")
    ask.note("a pod above the maximum", client.post(client.pods, wanted), only=lambda _: "taken")


def rejections_by_a_missing_namespace(ask: Transcript) -> None:
    client = ask.client
    ask.note("to a pod", client.post("/api/v1/namespaces/nonexistent/pods", pod("a")))
    ask.note("to a cluster", client.post("/apis/probe.raytide.io/v1/namespaces/nonexistent/rayclusters", cluster("a")))
    ask.note("to a list", client.get("/api/v1/namespaces/nonexistent/pods"), only=lambda body: body["items"])


def rejections_by_a_terminating_namespace(ask: Transcript) -> None:
    client = ask.client
    name = f"{client.namespace}-inner"
    path = f"/api/v1/namespaces/{name}"
    client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": ["example.com/wait"]}}
    client.post(f"{path}/configmaps", held)
    eventually(lambda: client.get(f"{path}/serviceaccounts/default").status == 200, "it has its service account")
    client.delete(path)
    eventually(lambda: client.get(path).body["status"]["phase"] == "Terminating", "it is going")
    ask.note("to a pod", client.post(f"{path}/pods", pod("x")))
    ask.note("to a cluster", client.post(f"/apis/probe.raytide.io/v1/namespaces/{name}/rayclusters", cluster("x")))
    client.patch(f"{path}/configmaps/a", {"metadata": {"finalizers": None}})


def rejections_by_an_unknown_priority_class(ask: Transcript) -> None:
    wanted = pod("p")
    wanted["spec"]["priorityClassName"] = "nobody"
    ask.note("to a pod", ask.client.post(ask.client.pods, wanted), only=lambda _: "taken")


def rejections_by_an_admission_policy(ask: Transcript) -> None:
    client = ask.client
    name = f"{client.namespace}-policy"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    policy: Json = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    policy |= {"metadata": {"name": name}}
    policy["spec"] = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name != 'no'", "message": "no pod may be called no"}],
    }
    binding: Json = {**policy, "kind": "ValidatingAdmissionPolicyBinding"}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": client.namespace}}}
    binding["spec"] = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    has_policies = client.post(POLICIES, policy).status == 201
    client.post(POLICIES.replace("policies", "policybindings"), binding)

    def is_held() -> bool:
        return not has_policies or client.post(client.pods, pod("no"), dryRun="All").status != 201

    eventually(is_held, "the policy holds", 30)
    ask.note("to a pod", client.new_pod("no"), only=lambda _: "taken")
    if has_policies:
        client.delete(f"{POLICIES.replace('policies', 'policybindings')}/{name}")
        client.delete(f"{POLICIES}/{name}")


def _until_counted(client: Client, quota: str) -> None:
    """A quota holds once its controller has counted."""

    def is_counted() -> bool:
        found = client.get(f"{client.core}/resourcequotas/{quota}").body
        return client.endpoint.is_embedded or "hard" in found.get("status", {})

    eventually(is_counted, "the quota is counted")

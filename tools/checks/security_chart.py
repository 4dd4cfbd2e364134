"""Rules of kube-linter for the rendered chart, also those that are off by default, without its program.

kube-linter's module is not on the Go module proxy; the rules have its names. Pure but for reading the renderings. Used by
security.py; SE:C2.
"""

from collections.abc import Iterator
from typing import Any

import yaml

from security_findings import Finding
from security_scanners import Scanned, Scene

Json = dict[str, Any]
SCANNER = "chart-rules"
READS = {"get", "list", "watch", "*"}
WRITES = {"create", "*"}
HOST_FIELDS = {"hostNetwork": "host-network", "hostPID": "host-pid", "hostIPC": "host-ipc"}


def check(scene: Scene) -> Scanned:
    """All rules on each rendering."""
    findings, objects = [], 0
    for name, rendering in scene.renderings.items():
        documents = [each for each in yaml.safe_load_all(rendering.read_text()) if each]
        objects += len(documents)
        for rule, place, text in violations(documents):
            findings.append(Finding(SCANNER, rule, f"{name} {place}", text))
    return Scanned(f"{objects} objects", findings)


def violations(documents: list[Json]) -> Iterator[tuple[str, str, str]]:
    """Rule, object and text of each violation."""
    for document in documents:
        place = f"{document['kind']}/{document['metadata']['name']}"
        if document["kind"] in ("Role", "ClusterRole"):
            yield from ((rule, place, text) for rule, text in _of_rights(document.get("rules", [])))
        if document["kind"].endswith("RoleBinding") and document["roleRef"]["name"] == "cluster-admin":
            yield "cluster-admin-role-binding", place, "binds cluster-admin"
        if document["kind"] == "Deployment":
            yield from ((rule, place, text) for rule, text in _of_pod(document["spec"]["template"]["spec"]))
            yield from ((rule, place, text) for rule, text in _of_deployment(document, documents))


def _of_rights(rules: list[Json]) -> Iterator[tuple[str, str]]:
    for rule in rules:
        resources, verbs = set(rule.get("resources", [])), set(rule["verbs"])
        if "*" in resources | verbs | set(rule.get("apiGroups", [])):
            yield "wildcard-in-rules", str(rule)
        if resources & {"secrets", "*"} and verbs & READS:
            yield "access-to-secrets", str(rule)
        if resources & {"pods", "*"} and verbs & WRITES:
            yield "access-to-create-pods", "may create pods"


def _of_deployment(deployment: Json, documents: list[Json]) -> Iterator[tuple[str, str]]:
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    if not _selects(deployment["spec"]["selector"], labels):
        yield "mismatching-selector", "the selector does not match the labels of the pods"
    policies = [each["spec"]["podSelector"] for each in documents if each["kind"] == "NetworkPolicy"]
    if not any(_selects(selector, labels) for selector in policies):
        yield "non-isolated-pod", "no NetworkPolicy selects the pods"
    accounts = {each["metadata"]["name"] for each in documents if each["kind"] == "ServiceAccount"}
    if deployment["spec"]["template"]["spec"].get("serviceAccountName") not in accounts - {"default"}:
        yield "non-existent-service-account", "the pods' account is not in the chart"


def _selects(selector: Json, labels: Json) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items()


def _of_pod(spec: Json) -> Iterator[tuple[str, str]]:
    for field, rule in HOST_FIELDS.items():
        if spec.get(field):
            yield rule, field
    if any("hostPath" in volume for volume in spec.get("volumes", [])):
        yield "host-mounts", "a volume of the node"
    for container in spec["containers"] + spec.get("initContainers", []):
        yield from _of_container(container)


def _of_container(container: Json) -> Iterator[tuple[str, str]]:
    yield from _of_context(container.get("securityContext", {}))
    for probe in ("liveness", "readiness"):
        if f"{probe}Probe" not in container:
            yield f"no-{probe}-probe", "there is none"
    for variable in container.get("env", []):
        if "secretKeyRef" in variable.get("valueFrom", {}):
            yield "read-secret-from-env-var", variable["name"]
    if any("secretRef" in source for source in container.get("envFrom", [])):
        yield "read-secret-from-env-var", "envFrom"
    if container["image"].endswith(":latest") or ":" not in container["image"]:
        yield "latest-tag", container["image"]
    for kind in ("cpu", "memory"):
        if not all(container.get("resources", {}).get(each, {}).get(kind) for each in ("requests", "limits")):
            yield f"unset-{kind}-requirements", "request or limit is not set"


def _of_context(context: Json) -> Iterator[tuple[str, str]]:
    if context.get("runAsNonRoot") is not True:
        yield "run-as-non-root", "runAsNonRoot is not true"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "no-read-only-root-fs", "readOnlyRootFilesystem is not true"
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield "privilege-escalation-container", "privileged, or allowPrivilegeEscalation is not false"
    if "ALL" not in context.get("capabilities", {}).get("drop", []):
        yield "drop-net-raw-capability", "not all capabilities are dropped"

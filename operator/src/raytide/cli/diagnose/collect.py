"""Collects what a maintainer needs to answer a bug report, with the rights of the caller.

Reads workloads, what belongs to them, nodes, definitions and the operator; sends only GETs and never asks for Secrets. What cannot be
read is noted and does not end the rest; only if no workload can be read, ReadError. Every object passes redact_objects.py before it
is stored, so that memory holds one page of unredacted objects. Called by `raytide diagnose`.
"""

import asyncio
import platform
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from raytide.api import constants, meta, trainingjob_constants
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Key, Manifest, Resource
from raytide.cli.columns import printable
from raytide.cli.diagnose.bundle import Bundle, Unread
from raytide.cli.diagnose.redact_objects import Redactor, reduced_definition, reduced_event, reduced_node
from raytide.client.workload_reader import POD_LABELS, RESOURCES, TIMEOUT_S, ReadError, WorkloadReader, unlisted
from raytide.explain.encode import as_json
from raytide.explain.explain import explain
from raytide.explain.model import RAYCLUSTER
from raytide.kube.client import Client

MAX_WORKLOADS: Final = 50
"""Of each kind."""
MAX_PODS: Final = 200
"""Of each workload."""
MAX_NODES: Final = 200
MAX_EVENTS: Final = 200
"""Of each workload."""
MAX_EVENTS_READ: Final = 5000
"""Of each namespace."""
MAX_OBJECTS: Final = 50
"""Of each other kind."""
MAX_OPERATOR_PODS: Final = 3
LOG_LINES: Final = 2000
LOG_BYTES: Final = 1 << 20
"""Of each log; with longer lines it has fewer of them."""
PAGE: Final = 100
MAX_S: Final = 300.0
"""Of all requests; an API server that stops answering would take ten seconds for each."""

OPERATOR_LABELS: Final = {constants.APP_NAME_LABEL: constants.OPERATOR}
"""Of the Deployment and the pods that the chart installs."""
_RIGHTS: Final = (
    ("service-accounts", meta.SERVICE_ACCOUNTS, constants.CLUSTER_LABEL),
    ("roles", meta.ROLES, constants.CLUSTER_LABEL),
    ("role-bindings", meta.ROLE_BINDINGS, constants.CLUSTER_LABEL),
)
"""What the operator creates for an autoscaler: file, resource, and the label with the name of the RayCluster."""
_MEMBERSHIP: Final = (("config-maps", meta.CONFIG_MAPS, trainingjob_constants.JOB_LABEL),)
"""The same for a TrainingJob."""

Reduce: TypeAlias = Callable[[Manifest], Manifest]
ERRORS: Final = (ApiStatusError, ApiUnavailableError, msgspec.MsgspecError)


def _is_any(_obj: Manifest) -> bool:
    return True


class Collector:
    """Fills a bundle from one API server."""

    def __init__(self, client: Client, bundle: Bundle, redactor: Redactor, *, has_logs: bool) -> None:
        self._client = client
        self._bundle = bundle
        self._redactor = redactor
        self._has_logs = has_logs
        self._label_keys: set[str] = set()
        """Labels of nodes that pods select."""

    async def collect(self, kind: str, name: str, namespace: str, operator_namespace: str) -> None:
        """Everything about a workload, or about those of the namespace; what was read within MAX_S. Raises ReadError."""
        try:
            async with asyncio.timeout(MAX_S):
                if name:
                    await self.workload(namespace, kind, name)
                else:
                    await self.workloads(namespace)
                await self.versions()
                await self.nodes()
                await self.operator(operator_namespace)
        except TimeoutError as error:
            if not self._bundle.files:
                raise ReadError(f"the API server did not answer within {MAX_S:.0f} s") from error
            self._bundle.omitted.append(f"everything that could not be read within {MAX_S:.0f} s")

    # --- parts -----------------------------------------------------------------------------------------------------------

    async def versions(self) -> None:
        """Versions of Raytide, Python, the API server and the definitions."""
        found: dict[str, Any] = {"raytide": constants.VERSION, "python": platform.python_version(), "kubernetes": None}
        try:
            response = await self._client.transport.request("GET", "/version", timeout_s=TIMEOUT_S)
            answer = msgspec.json.decode(response.body) if response.status == 200 else {}
            found["kubernetes"] = self._redactor.texts(
                {key: answer.get(key) for key in ("gitVersion", "platform", "major", "minor")}
            )
        except (*ERRORS, AttributeError) as error:
            self._bundle.add_unread(Unread("get", "/version", "", self._redactor.text(str(error))))
        self._bundle.add_json("versions.json", found)
        definitions = []
        for resource in RESOURCES.values():
            key = Key("", f"{resource.plural}.{resource.group}")
            if definition := await self._get(meta.CUSTOM_RESOURCE_DEFINITIONS, key):
                definitions.append(reduced_definition(definition, self._redactor))
        if definitions:
            self._bundle.add_json("definitions.json", definitions)

    async def workload(self, namespace: str, kind: str, name: str) -> None:
        """One workload of that name, of either kind if none is given; raises ReadError if it cannot be read."""
        kind, obj, unread = await WorkloadReader(self._client, namespace).find(kind, name)
        for each in unread:
            plural = _qualified(RESOURCES[each.what])
            self._bundle.add_unread(Unread("get", plural, namespace, self._redactor.text(each.error)))
        await self._namespace(namespace, [(kind, obj)])

    async def workloads(self, namespace: str) -> None:
        """The workloads of a namespace, or of all if it is empty. Raises ReadError if neither kind can be listed."""
        found: dict[str, list[tuple[str, Manifest]]] = {}
        errors: dict[str, object] = {}
        for kind, resource in RESOURCES.items():
            try:
                async for obj in self._objects(resource, namespace, MAX_WORKLOADS):
                    found.setdefault(str(obj["metadata"]["namespace"]), []).append((kind, obj))
            except ERRORS as error:
                self._note("list", _qualified(resource), namespace, error)
                errors[resource.plural] = error
        if len(errors) == len(RESOURCES):
            raise ReadError("; ".join(unlisted(errors)))
        if not found and not errors:
            self._bundle.notes.append(f"RayClusters and TrainingJobs in {_where(namespace)}")
        for each, objects in sorted(found.items()):
            await self._namespace(each, objects)

    async def nodes(self) -> None:
        """What matters of the nodes for scheduling; after the workloads, whose pods select labels."""
        nodes = await self._list(
            meta.NODES, "", MAX_NODES, lambda node: reduced_node(node, self._label_keys, self._redactor)
        )
        if nodes is not None:
            self._bundle.add_json("nodes.json", nodes)

    async def operator(self, namespace: str) -> None:
        """The operator's Deployments, pods, Leases and logs in a namespace; in an empty one, wherever the chart's labels are."""
        chart = _selector(OPERATOR_LABELS)
        deployments = await self._list(
            meta.DEPLOYMENTS,
            namespace,
            MAX_OBJECTS,
            _unchanged,
            "" if namespace else chart,
            is_kept=_is_operator if namespace else _runs_operator,
        )
        if deployments == []:
            self._bundle.notes.append(
                f"a Deployment that runs `raytide operator` in namespace {namespace}"
                if namespace
                else f"a Deployment with the label {chart} in any namespace: name its namespace by --operator-namespace"
            )
        places = {(str(each["metadata"]["namespace"]), _pod_selector(each)) for each in deployments or ()}
        if not places and namespace:
            places = {(namespace, chart)}
        pods = [
            pod
            for where, selector in sorted(places)
            for pod in await self._list(meta.PODS, where, MAX_OBJECTS, _unchanged, selector) or ()
        ]
        leases = [
            await self._get(meta.LEASES, Key(where, constants.LEADER_LEASE))
            for where in sorted({where for where, _ in places})
        ]
        for file, objects in (("deployments", deployments or ()), ("pods", pods), ("leases", leases)):
            if found := [self._redactor.object(each) for each in objects if each]:
                self._bundle.add_json(f"operator/{file}.json", found)
        for pod in pods[:MAX_OPERATOR_PODS]:
            for container in _containers(pod):
                await self._logs(pod, container, f"operator/{pod['metadata']['name']}-{container}")

    # --- one namespace ---------------------------------------------------------------------------------------------------

    async def _namespace(self, namespace: str, objects: Iterable[tuple[str, Manifest]]) -> None:
        owners: dict[str, str] = {}
        for kind, obj in objects:
            await self._one(namespace, kind, obj, owners)
        await self._events(namespace, owners)
        quotas = await self._list(meta.RESOURCE_QUOTAS, namespace, MAX_OBJECTS, self._redactor.object)
        if quotas:
            self._bundle.add_json(f"namespaces/{namespace}/resource-quotas.json", quotas)

    async def _one(self, namespace: str, kind: str, obj: Manifest, owners: dict[str, str]) -> None:
        """The workload and what belongs to it; adds the uid of each object to `owners`, with the folder of the workload."""
        name, uid = str(obj["metadata"]["name"]), str(obj["metadata"].get("uid", ""))
        folder = f"namespaces/{namespace}/{kind.lower()}-{name}"
        owners[uid] = folder
        self._bundle.add_json(f"{folder}/object.json", self._redactor.object({"kind": kind, **obj}))
        selector = f"{POD_LABELS[kind]}={name}"
        is_autoscaled = kind == RAYCLUSTER and bool((obj.get("spec") or {}).get("enableInTreeAutoscaling"))
        heads: list[Manifest] = []

        def pod(found: Manifest) -> Manifest:
            owners[str(found["metadata"].get("uid", ""))] = folder
            self._label_keys.update((found.get("spec") or {}).get("nodeSelector") or ())
            if is_autoscaled and _is_head_with_autoscaler(found):
                heads.append(_log_facts(found))
            return self._redactor.object(found)

        pods = await self._list(meta.PODS, namespace, MAX_PODS, pod, selector)
        if pods is not None:
            self._bundle.add_json(f"{folder}/pods.json", pods)
        explained = explain(await WorkloadReader(self._client, namespace).complete(kind, obj), self._bundle.at)
        self._bundle.add_json(f"{folder}/why.json", self._redactor.texts(as_json(explained)))
        services = await self._list(
            meta.SERVICES, namespace, 10 * MAX_OBJECTS, self._redactor.object, is_kept=lambda each: _is_owned(each, uid)
        )
        if services is not None:
            self._bundle.add_json(f"{folder}/services.json", services)
        for file, resource, label in _RIGHTS if is_autoscaled else () if kind == RAYCLUSTER else _MEMBERSHIP:
            found = await self._list(resource, namespace, MAX_OBJECTS, self._redactor.metadata_only, f"{label}={name}")
            if found is not None:
                self._bundle.add_json(f"{folder}/{file}.json", found)
        for head in heads[:1]:
            await self._logs(head, constants.AUTOSCALER_CONTAINER, f"{folder}/{constants.AUTOSCALER_CONTAINER}")

    async def _events(self, namespace: str, owners: Mapping[str, str]) -> None:
        """The events about these objects, by workload."""
        found: dict[str, list[Manifest]] = {folder: [] for folder in owners.values()}
        try:
            async for event in self._objects(meta.EVENTS, namespace, MAX_EVENTS_READ):
                folder = owners.get(str((event.get("involvedObject") or {}).get("uid")))
                if folder is not None:
                    found[folder].append(reduced_event(event, self._redactor))
                    if len(found[folder]) > 2 * MAX_EVENTS:
                        found[folder] = _latest(found[folder])
        except ERRORS as error:
            self._note("list", "events", namespace, error)
            return
        for folder, events in found.items():
            self._bundle.add_json(f"{folder}/events.json", _latest(events))

    # --- logs ------------------------------------------------------------------------------------------------------------

    async def _logs(self, pod: Manifest, container: str, path: str) -> None:
        """The log of a container, and of its previous instance if it was restarted."""
        if not self._has_logs:
            return
        status = pod.get("status") or {}
        statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
        restarts = max((each.get("restartCount") or 0 for each in statuses if each.get("name") == container), default=0)
        metadata = pod["metadata"]
        key = Key(str(metadata.get("namespace", "")), str(metadata["name"]))
        for is_previous in (False, True) if restarts else (False,):
            try:
                text = await self._log(key, container, is_previous=is_previous)
            except ERRORS as error:
                self._note("get", "pods/log", key.namespace, error)
                return
            self._bundle.add_text(f"{path}{'-previous' if is_previous else ''}.log", text)

    async def _log(self, key: Key, container: str, *, is_previous: bool) -> str:
        """Its last lines, redacted."""
        lines = LOG_LINES
        while True:
            content = await self._client.pod_log(
                key, container, tail_lines=lines, limit_bytes=LOG_BYTES, is_previous=is_previous
            )
            if len(content) < LOG_BYTES or lines == 1:
                break
            lines = max(1, lines // 8)  # the limit cuts off the latest
        kept = content[:LOG_BYTES].decode(errors="replace").split("\n")
        if len(content) >= LOG_BYTES:
            kept.pop()  # half of a credential would not be recognized
        text = self._redactor.text("\n".join(kept), "parts of log lines")
        return "\n".join(map(printable, text.split("\n")))

    # --- requests --------------------------------------------------------------------------------------------------------

    async def _get(self, resource: Resource, key: Key) -> Manifest | None:
        try:
            return await self._client.get(resource, key)
        except ERRORS as error:
            self._note("get", _qualified(resource), key.namespace, error)
            return None

    async def _list(
        self,
        resource: Resource,
        namespace: str,
        limit: int,
        reduce: Reduce,
        selector: str = "",
        *,
        is_kept: Callable[[Manifest], bool] = _is_any,
    ) -> list[Manifest] | None:
        """The objects, each reduced before the next page is read; None if they cannot be listed."""
        try:
            return [reduce(obj) async for obj in self._objects(resource, namespace, limit, selector) if is_kept(obj)]
        except ERRORS as error:
            self._note("list", _qualified(resource), namespace, error)
            return None

    async def _objects(
        self, resource: Resource, namespace: str, limit: int, selector: str = ""
    ) -> AsyncIterator[Manifest]:
        """At most that many objects."""
        number = 0
        pages = self._client.pages(resource, namespace, label_selector=selector, page_size=min(limit + 1, PAGE))
        async for page in pages:
            for item in page.items:
                if number == limit:
                    where = f" of {selector}" if selector else f" in namespace {namespace}" if namespace else ""
                    self._bundle.omitted.append(f"{resource.plural}{where}: all after the first {limit}")
                    return
                obj: Manifest = msgspec.json.decode(item, type=dict)
                if isinstance(obj.get("metadata"), dict):
                    number += 1
                    yield obj

    def _note(self, verb: str, resource: str, namespace: str, error: Exception) -> None:
        is_forbidden = isinstance(error, ApiStatusError) and error.status == 403
        self._bundle.add_unread(Unread(verb, resource, namespace, self._redactor.text(str(error)), is_forbidden))


def _qualified(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _selector(labels: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _pod_selector(deployment: Manifest) -> str:
    """Of its pods."""
    return _selector(((deployment.get("spec") or {}).get("selector") or {}).get("matchLabels") or OPERATOR_LABELS)


def _is_operator(deployment: Manifest) -> bool:
    """Whether it runs `raytide operator`, or has the chart's labels with another command."""
    labels = deployment["metadata"].get("labels") or {}
    return _runs_operator(deployment) or labels.get(constants.APP_NAME_LABEL) == constants.OPERATOR


def _runs_operator(deployment: Manifest) -> bool:
    template = (deployment.get("spec") or {}).get("template") or {}
    for container in (template.get("spec") or {}).get("containers") or ():
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        if constants.OPERATOR in words and "operator" in words:
            return True
    return False


def _is_head_with_autoscaler(pod: Manifest) -> bool:
    """Users may give other containers that name: their logs are not read."""
    labels = pod["metadata"].get("labels") or {}
    return labels.get(constants.NODE_TYPE_LABEL) == constants.HEAD and constants.AUTOSCALER_CONTAINER in _containers(
        pod
    )


def _is_owned(obj: Manifest, uid: str) -> bool:
    return any(each.get("uid") == uid for each in obj["metadata"].get("ownerReferences") or ())


def _containers(pod: Manifest) -> list[str]:
    spec = pod.get("spec") or {}
    every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return [str(each.get("name")) for each in every]


def _log_facts(pod: Manifest) -> Manifest:
    """What `_logs` needs of a pod: its key and the restarts of its containers."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    return {
        "metadata": {"name": metadata["name"], "namespace": metadata.get("namespace", "")},
        "status": {
            key: [
                {"name": each.get("name"), "restartCount": each.get("restartCount")} for each in status.get(key) or ()
            ]
            for key in ("containerStatuses", "initContainerStatuses")
        },
    }


def _latest(events: list[Manifest]) -> list[Manifest]:
    return sorted(events, key=lambda each: str(each.get("last") or ""))[-MAX_EVENTS:]


def _unchanged(obj: Manifest) -> Manifest:
    return obj


def subject(kind: str, name: str, namespace: str) -> str:
    """What the bundle is about, in words."""
    where = _where(namespace)
    return f"{kind or 'workload'} {name} in {where}" if name else f"all workloads of {where}"


def _where(namespace: str) -> str:
    return f"namespace {namespace}" if namespace else "all namespaces"


def folder_name(at: datetime) -> str:
    """The name of the folder in the archive, and of the archive."""
    return f"raytide-diagnose-{at:%Y%m%dT%H%M%SZ}"

"""Subresources: scale, binding, eviction, token, log, exec, attach, portforward and proxy.

The first four change the store or mint a token; the others become a `Proxied` with the address and path of the kubelet
of the pod's node, as in a real API server. A service is proxied to one of its ready endpoints. Pure; called by
`routes.py` (D17).
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from raytide_sandbox.apiserver.api_status import (
    ApiStatusError,
    Cause,
    bad_request,
    conflict,
    invalid,
    not_found,
    not_implemented,
    success,
)
from raytide_sandbox.apiserver.printing.tables import json_path
from raytide_sandbox.apiserver.request_info import Call
from raytide_sandbox.apiserver.request_response import Proxied, Response
from raytide_sandbox.apiserver.store import Store
from raytide_sandbox.apiserver.write_handlers import Writer
from raytide_sandbox.rfc3339 import format_time

Json = dict[str, Any]
encode = msgspec.json.encode

_KUBELET_PORT: Final = 10250
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_TOKEN_LIFE_S: Final = 3600
_LOG_OPTIONS: Final = {
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "tailLines",
    "limitBytes",
    "stream",
}


class MintToken(Protocol):
    """Creates a bearer token for a service account."""

    def __call__(self, namespace: str, name: str, *, life_s: int, bound_to: Json | None) -> str:
        """A token that is valid for `life_s` seconds from now; `bound_to` refers to a pod."""
        ...


class Subresources:
    """The subresource handlers of one store."""

    def __init__(self, store: Store, writer: Writer, *, mint_token: MintToken | None) -> None:
        self._store = store
        self._writer = writer
        self._mint_token = mint_token
        self._posts: dict[str, Callable[[Call], Response]] = {
            "binding": self._bind,
            "eviction": self._evict,
            "token": self._token,
        }

    def post(self, call: Call) -> Response:
        """Answer a POST to binding, eviction or token; 405 for any other."""
        run = self._posts.get(call.target.subresource)
        if run is None:
            raise ApiStatusError(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
            )
        return run(call)

    # --- scale -------------------------------------------------------------------------------------------------------
    def scale(self, call: Call) -> Response:
        """Answer a GET, PUT or PATCH of a Scale."""
        old = self._store.get(call.key, call.target.namespace, call.target.name)
        method = call.request.method
        if method == "GET":
            if call.served.resource.is_custom and not json_path(_replicas_text(call), old):
                message = f'Internal error occurred: the spec replicas field "{_replicas_text(call)}" does not exist'
                raise ApiStatusError(500, "InternalError", message)
            return Response(200, encode(_scale(call, old)))
        wanted = call.body() if method == "PUT" else self._writer.patched(call, _scale(call, old))
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            raise _no_size(call, replicas)
        new = self._store.get(call.key, call.target.namespace, call.target.name)
        new["metadata"]["resourceVersion"] = wanted["metadata"].get("resourceVersion")
        place = new
        *way, last = _replicas_path(call)
        for name in way:
            place = place.setdefault(name, {})
        place[last] = replicas
        entry, _ = self._writer.write(call, old, new)
        return Response(200, encode(_scale(call, entry.obj())))

    # --- pods --------------------------------------------------------------------------------------------------------
    def _bind(self, call: Call) -> Response:
        binding = call.body()
        node = (binding.get("target") or {}).get("name")
        if not node:
            fault = Cause("target.name", "Required value", "FieldValueRequired")
            raise invalid("Binding", call.target.name, [fault])
        pod = self._store.get("pods", call.target.namespace, call.target.name)
        bind_pod(pod, node, moment=format_time(self._store.now()))
        if not call.is_dry_run:
            self._store.update("pods", pod, subresource="binding")
        return Response(201, encode(success(201)))

    def _evict(self, call: Call) -> Response:
        options = call.body().get("deleteOptions") or {}
        preconditions = options.get("preconditions") or {}
        self._store.delete(
            "pods",
            call.target.namespace,
            call.target.name,
            uid=preconditions.get("uid"),
            grace_s=options.get("gracePeriodSeconds"),
            propagation=options.get("propagationPolicy"),
            is_dry_run=call.is_dry_run,
        )
        return Response(201, encode(success(201)))

    def _token(self, call: Call) -> Response:
        if self._mint_token is None:
            raise not_implemented("service account tokens in this process")
        namespace, name = call.target.namespace, call.target.name
        self._store.entry("serviceaccounts", namespace, name)
        request = call.body()
        spec = request.setdefault("spec", {})
        life_s = spec.setdefault("expirationSeconds", _TOKEN_LIFE_S)
        token = self._mint_token(namespace, name, life_s=life_s, bound_to=spec.get("boundObjectRef"))
        expires = format_time(self._store.now() + timedelta(seconds=life_s))
        request.update(apiVersion="authentication.k8s.io/v1", kind="TokenRequest")
        request["metadata"] = {"name": name, "namespace": namespace}
        request["status"] = {"token": token, "expirationTimestamp": expires}
        return Response(201, encode(request))

    # --- forwarded to the kubelet ------------------------------------------------------------------------------
    def log(self, call: Call) -> Response | Proxied:
        """Forward a log request; a pod without a node has an empty log (204)."""
        pod = self._store.get("pods", call.target.namespace, call.target.name)
        container = _container(call, pod)
        if not pod["spec"].get("nodeName"):
            return Response(204, b"", {})
        query = "&".join(f"{key}={quote(value)}" for key, value in call.request.query.items() if key in _LOG_OPTIONS)
        return self._forward(pod, f"/containerLogs/{_place(pod)}/{container}" + (f"?{query}" if query else ""))

    def stream(self, call: Call) -> Proxied:
        """Forward exec, attach or portforward, with the query in the kubelet's spelling."""
        pod = self._store.get("pods", call.target.namespace, call.target.name)
        name = call.target.name
        if not pod["spec"].get("nodeName"):
            raise bad_request(f"pod {name} does not have a host assigned")
        if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
            raise ApiStatusError(
                500, "InternalError", f"cannot {call.target.subresource} into a container in a completed pod"
            )
        if call.target.subresource == "portforward":
            query = f"?{call.request.raw_query}" if call.request.raw_query else ""
            return self._forward(pod, f"/portForward/{_place(pod)}{query}")
        container = _container(call, pod)
        query = _kubelet_query(call.request.raw_query)
        return self._forward(pod, f"/{call.target.subresource}/{_place(pod)}/{container}?{query}")

    def proxy(self, call: Call) -> Proxied:
        """Forward HTTP of pods/proxy and services/proxy to a port of a pod, through its kubelet."""
        _, name, port_text = _proxy_name(call.target.name)
        if call.key == "services":
            pod, port = self._endpoint(call, name, port_text)
        else:
            pod = self._store.get("pods", call.target.namespace, name)
            ports = [item["containerPort"] for item in pod["spec"]["containers"][0].get("ports") or ()]
            port = int(port_text) if port_text.isdigit() else next(iter(ports), 80)
        query = f"?{call.request.raw_query}" if call.request.raw_query else ""
        path = f"/podProxy/{_place(pod)}/{port}/{quote(call.target.rest)}{query}"
        return replace(self._forward(pod, path), is_transparent=True)

    def _endpoint(self, call: Call, name: str, port_text: str) -> tuple[Json, int]:
        namespace = call.target.namespace
        service = self._store.get("services", namespace, name)
        ports = service["spec"].get("ports") or []
        wanted = [item for item in ports if not port_text or port_text in {item.get("name"), str(item["port"])}]
        if not wanted:
            raise ApiStatusError(503, "ServiceUnavailable", f'no service port "{port_text}" found for service "{name}"')
        entry = self._store.find("endpoints", namespace, name)
        for subset in (entry.obj().get("subsets") or ()) if entry else ():
            port = next((p["port"] for p in subset.get("ports") or () if p.get("name") == wanted[0].get("name")), None)
            for address in subset.get("addresses") or ():
                target = (address.get("targetRef") or {}).get("name")
                pod = self._store.find("pods", namespace, target) if target else None
                if pod is not None and port is not None:
                    return pod.obj(), port
        raise ApiStatusError(503, "ServiceUnavailable", f'no endpoints available for service "{name}"')

    def _forward(self, pod: Json, path: str) -> Proxied:
        name = pod["spec"].get("nodeName")
        if not name:
            raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
        entry = self._store.find("nodes", "", name)
        if entry is None:
            raise not_found("nodes", name)
        status = entry.obj().get("status") or {}
        addresses = {item.get("type"): item.get("address") for item in status.get("addresses") or ()}
        host = addresses.get("InternalIP") or addresses.get("Hostname")
        if not host:
            raise ApiStatusError(500, "InternalError", f"no preferred addresses found for node {name}")
        endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
        return Proxied(host, int(endpoint.get("Port") or _KUBELET_PORT), path, name)


def bind_pod(pod: Json, node: str, *, moment: str) -> None:
    """Bind a pod to a node, as the binding endpoint does; 409 when it is bound, gated or terminating."""
    metadata = pod["metadata"]
    name = metadata["name"]
    if "deletionTimestamp" in metadata:
        raise conflict("pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise conflict("pods/binding", name, f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
    pod["spec"]["nodeName"] = node
    status = pod.setdefault("status", {})
    kept = [item for item in status.get("conditions") or () if item.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": moment}
    status["conditions"] = [*kept, scheduled]


def _place(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _container(call: Call, pod: Json) -> str:
    """The requested container, else the only one, else the one in the default-container annotation; 400 otherwise."""
    spec = pod["spec"]
    names = [item["name"] for group in ("initContainers", "containers") for item in spec.get(group) or ()]
    asked = call.request.query.get("container")
    pod_name = pod["metadata"]["name"]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {pod_name}")
        return asked
    if len(spec["containers"]) == 1:
        return str(spec["containers"][0]["name"])
    default = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    if default in names:
        return str(default)
    choices = " ".join(item["name"] for item in spec["containers"])
    raise bad_request(f"a container name must be specified for pod {pod_name}, choose one of: [{choices}]")


_STREAMS: Final = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}


def _kubelet_query(raw_query: str) -> str:
    """Translate the API's stdin=true to the kubelet's input=1; `command` may be repeated and keeps its order."""
    parts = []
    for part in raw_query.split("&"):
        key, _, value = part.partition("=")
        if key == "command":
            parts.append(part)
        elif key in _STREAMS and value in {"true", "1"}:
            parts.append(f"{_STREAMS[key]}=1")
    return "&".join(parts)


def _proxy_name(text: str) -> tuple[str, str, str]:
    """Split `[scheme:]name[:port]` into (scheme, name, port)."""
    parts = text.split(":")
    if len(parts) == 3:
        return parts[0], parts[1], parts[2]
    return "http", parts[0], parts[1] if len(parts) == 2 else ""


def _no_size(call: Call, replicas: object) -> ApiStatusError:
    """422 for an invalid replica count: names the custom kind's own field, or that of the Scale for built-in kinds."""
    resource = call.served.resource
    if resource.is_custom:
        fault = Cause(_replicas_text(call), f"Invalid value: {replicas}: should be a non-negative integer")
        return invalid(resource.kind, call.target.name, [fault], group=resource.group)
    fault = Cause("spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0")
    return invalid("Scale", call.target.name, [fault], group="autoscaling")


def _replicas_text(call: Call) -> str:
    return str((call.served.scale or {}).get("specReplicasPath") or ".spec.replicas")


def _replicas_path(call: Call) -> list[str]:
    return _replicas_text(call).lstrip(".").split(".")


def _scale(call: Call, obj: Json) -> Json:
    paths = call.served.scale or {}
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    current = json_path(paths.get("statusReplicasPath") or ".status.replicas", obj)
    wanted = json_path(_replicas_text(call), obj)
    status: Json = {"replicas": current[0] if current else 0}
    selector = json_path(paths["labelSelectorPath"], obj) if paths.get("labelSelectorPath") else []
    if selector:
        status["selector"] = selector[0]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": wanted[0] if wanted else 0},
        "status": status,
    }

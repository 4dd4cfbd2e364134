"""Discovery documents: groups, versions and kinds of the API server.

Answers /api, /apis and below: the classic documents, and the aggregated form (v2) that kubectl asks for first. Bodies
are cached until the served kinds change. Pure; called by `routes.py`, reads the kinds from the registry.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from raytide_sandbox.apiserver.api_status import unknown_path
from raytide_sandbox.apiserver.builtin_resources import REVIEWS
from raytide_sandbox.apiserver.registry import Registry, Served
from raytide_sandbox.apiserver.request_response import Request, Response

Json = dict[str, Any]

VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# subresource -> (group, version, kind, verbs); the others have the resource's own kind
_SUBRESOURCES: Final[dict[str, tuple[str, str, str, list[str]]]] = {
    "scale": ("autoscaling", "v1", "Scale", ["get", "patch", "update"]),
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ["create"]),
    "log": ("", "v1", "Pod", ["get"]),
    "exec": ("", "v1", "PodExecOptions", ["create", "get"]),
    "attach": ("", "v1", "PodAttachOptions", ["create", "get"]),
    "portforward": ("", "v1", "PodPortForwardOptions", ["create", "get"]),
    "proxy": ("", "v1", "PodProxyOptions", ["create", "delete", "get", "patch", "update"]),
    "finalize": ("", "v1", "Namespace", ["update"]),
}


class Discovery:
    """The discovery documents of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._bodies: dict[tuple[str, bool], bytes] = {}
        self._generation = -1

    def answer(self, request: Request) -> Response:
        """Answer a GET of a discovery document; 404 for a group or version that is not served."""
        if self._generation != self._registry.generation:
            self._bodies.clear()
            self._generation = self._registry.generation
        parts = tuple(request.path.strip("/").split("/"))
        is_aggregated = len(parts) == 1 and _wants_aggregated(request.headers.get("accept", ""))
        key = ("/".join(parts), is_aggregated)
        if key not in self._bodies:
            document = self._aggregated(parts[0]) if is_aggregated else self._classic(parts)
            self._bodies[key] = msgspec.json.encode(document)
        return Response(200, self._bodies[key], {"content-type": _AGGREGATED if is_aggregated else "application/json"})

    def _groups(self) -> dict[str, dict[str, list[Served]]]:
        groups: dict[str, dict[str, list[Served]]] = {}
        for served in self._registry.all():
            versions = groups.setdefault(served.resource.group, {})
            versions.setdefault(served.resource.version, []).append(served)
        for review in REVIEWS:
            groups.setdefault(review.group, {}).setdefault(review.version, [])
        return groups

    # --- classic -----------------------------------------------------------------------------------------------------
    def _classic(self, parts: tuple[str, ...]) -> Json:
        groups = self._groups()
        match parts:
            case ("api",):
                return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ("apis",):
                listed = [_group(name, list(versions)) for name, versions in groups.items() if name]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
            case ("api", "v1"):
                return _resource_list("", "v1", groups[""]["v1"])
            case ("apis", group) if group in groups and group:
                return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, list(groups[group]))}
            case ("apis", group, version) if group and version in groups.get(group, {}):
                return _resource_list(group, version, groups[group][version])
            case _:
                raise unknown_path()

    # --- aggregated --------------------------------------------------------------------------------------------------
    def _aggregated(self, root: str) -> Json:
        items = [
            {
                "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
                "versions": [
                    {
                        "version": version,
                        "resources": [*map(_aggregated_resource, served), *_aggregated_reviews(group)],
                        "freshness": "Current",
                    }
                    for version, served in versions.items()
                ],
            }
            for group, versions in self._groups().items()
            if bool(group) == (root == "apis")
        ]
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }


def _wants_aggregated(accept: str) -> bool:
    return any("as=APIGroupDiscoveryList" in choice and "v=v2;" in f"{choice};" for choice in accept.split(","))


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(group: str, version: str, served: Iterable[Served]) -> Json:
    resources: list[Json] = []
    for one in served:
        resource = one.resource
        item: Json = {
            "name": resource.plural,
            "singularName": resource.singular_name,
            "namespaced": resource.is_namespaced,
            "kind": resource.kind,
            "verbs": VERBS,
        }
        if resource.short_names:
            item["shortNames"] = list(resource.short_names)
        if resource.categories:
            item["categories"] = list(resource.categories)
        resources.append(item)
        resources += [_classic_subresource(one, name) for name in sorted(one.subresources)]
    resources += [
        {
            "name": review.plural,
            "singularName": review.kind.lower(),
            "namespaced": review.is_namespaced,
            "kind": review.kind,
            "verbs": list(review.verbs),
        }
        for review in REVIEWS
        if review.group == group
    ]
    api_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}


def _subresource(served: Served, name: str) -> tuple[str, str, str, list[str]]:
    resource = served.resource
    if name == "proxy" and resource.kind == "Service":
        return "", "v1", "ServiceProxyOptions", _SUBRESOURCES["proxy"][3]
    return _SUBRESOURCES.get(name, (resource.group, resource.version, resource.kind, ["get", "patch", "update"]))


def _classic_subresource(served: Served, name: str) -> Json:
    group, version, kind, verbs = _subresource(served, name)
    item: Json = {
        "name": f"{served.resource.plural}/{name}",
        "singularName": "",
        "namespaced": served.resource.is_namespaced,
        "kind": kind,
        "verbs": verbs,
    }
    if (group, version) != (served.resource.group, served.resource.version):
        item.update(group=group, version=version)
    return item


def _aggregated_resource(served: Served) -> Json:
    resource = served.resource
    item: Json = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.is_namespaced else "Cluster",
        "singularResource": resource.singular_name,
        "verbs": VERBS,
    }
    if resource.short_names:
        item["shortNames"] = list(resource.short_names)
    if resource.categories:
        item["categories"] = list(resource.categories)
    subresources = []
    for name in sorted(served.subresources):
        group, version, kind, verbs = _subresource(served, name)
        response = {"group": group, "version": version, "kind": kind}
        subresources.append({"subresource": name, "responseKind": response, "verbs": verbs})
    if subresources:
        item["subresources"] = subresources
    return item


def _aggregated_reviews(group: str) -> list[Json]:
    return [
        {
            "resource": review.plural,
            "responseKind": {"group": review.group, "version": review.version, "kind": review.kind},
            "scope": "Namespaced" if review.is_namespaced else "Cluster",
            "singularResource": review.kind.lower(),
            "verbs": list(review.verbs),
        }
        for review in REVIEWS
        if review.group == group
    ]

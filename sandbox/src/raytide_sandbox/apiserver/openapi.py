"""OpenAPI documents of the API server.

Answers /openapi/v3 (an index, then one document per group version with the schemas of custom kinds, so that `kubectl
explain` and client-side validation work) and /openapi/v2 (nearly empty, as JSON or as the protobuf that helm 3 reads).
Built-in kinds are described as free-form objects. Pure; called by `routes.py`.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from raytide_sandbox.apiserver import protobuf
from raytide_sandbox.apiserver.api_status import unknown_path
from raytide_sandbox.apiserver.registry import Registry, Served
from raytide_sandbox.apiserver.request_response import Request, Response

Json = dict[str, Any]
encode = msgspec.json.encode

_V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_VERBS: Final = {"get": "get", "put": "put", "patch": "patch", "delete": "delete"}
_OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class OpenApi:
    """The OpenAPI documents of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._documents: dict[str, bytes] = {}
        self._generation = -1

    def answer(self, request: Request) -> Response:
        """Answer a GET below /openapi; 404 for a group version that is not served."""
        if self._generation != self._registry.generation:
            self._documents.clear()
            self._generation = self._registry.generation
        path = request.path.strip("/")
        if path == "openapi/v2":
            return _v2(request)
        if path == "openapi/v3":
            return Response(200, encode({"paths": {where: self._link(where) for where in self._places()}}))
        where = path.removeprefix("openapi/v3/")
        if where not in self._places():
            raise unknown_path()
        return Response(200, self._document(where))

    def _places(self) -> dict[str, list[Served]]:
        places: dict[str, list[Served]] = {}
        for served in self._registry.all():
            resource = served.resource
            where = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
            places.setdefault(where, []).append(served)
        return places

    def _link(self, where: str) -> Json:
        # Clients cache a document by its hash, so the hash must change with the content.
        digest = hashlib.sha256(self._document(where)).hexdigest().upper()
        return {"serverRelativeURL": f"/openapi/v3/{where}?hash={digest}"}

    def _document(self, where: str) -> bytes:
        if where not in self._documents:
            self._documents[where] = encode(_document(where, self._places()[where]))
        return self._documents[where]


def _v2(request: Request) -> Response:
    if "protobuf" in request.headers.get("accept", ""):
        return Response(200, protobuf.OPENAPI_V2, {"content-type": _V2_PROTOBUF})
    information = {"title": "sandbox", "version": "v1.35.0"}
    return Response(200, encode({"swagger": "2.0", "info": information, "paths": {}, "definitions": {}}))


def _document(where: str, served: Iterable[Served]) -> Json:
    paths: Json = {}
    schemas: Json = {
        _OBJECT_META: {
            "description": "ObjectMeta is metadata that all persisted resources must have.",
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
    }
    for one in served:
        name = _schema_name(one)
        schemas[name] = _schema(one)
        paths.update(_paths(where, one, name))
    return {
        "openapi": "3.0.0",
        "info": {"title": "sandbox", "version": "v1.35.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(served: Served) -> str:
    resource = served.resource
    if not resource.is_custom:
        group = resource.group.partition(".")[0] or "core"
        return f"io.k8s.api.{group}.{resource.version}.{resource.kind}"
    reverse = ".".join(reversed(resource.group.split(".")))
    return f"{reverse}.{resource.version}.{resource.kind}"


def _schema(served: Served) -> Json:
    resource = served.resource
    gvk = [{"group": resource.group, "version": resource.version, "kind": resource.kind}]
    if served.schema is None:
        return {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "x-kubernetes-group-version-kind": gvk,
        }
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        **(served.schema.get("properties") or {}),
        "metadata": {"allOf": [{"$ref": f"#/components/schemas/{_OBJECT_META}"}], "default": {}},
    }
    return {**served.schema, "properties": properties, "x-kubernetes-group-version-kind": gvk}


def _paths(where: str, served: Served, schema_name: str) -> Json:
    resource = served.resource
    scope = "/namespaces/{namespace}" if resource.is_namespaced else ""
    collection = f"/{where}{scope}/{resource.plural}"
    operations = {verb: _operation(served, action, schema_name) for verb, action in _VERBS.items()}
    return {
        collection: {
            "get": _operation(served, "list", schema_name),
            "post": _operation(served, "post", schema_name),
        },
        f"{collection}/{{name}}": operations,
    }


def _operation(served: Served, action: str, schema_name: str) -> Json:
    resource = served.resource
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema_name}"}}}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    return {
        "parameters": parameters if action in {"post", "put", "patch"} else [],
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
    }

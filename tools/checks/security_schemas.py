"""JSON schemas for kubeconform, from the OpenAPI document of a real API server and from our CustomResourceDefinitions.

`provide` starts etcd and kube-apiserver once per version of these programs, and keeps the schemas in the user's cache folder.
Fields that a schema does not name are errors, as with `kubectl apply --validate=strict`. Used by security.py.
"""

import copy
import http.client
import json
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

import go_build
from environments import cache_folder
from raytide_sandbox.controlplane.binaries import program
from raytide_sandbox.controlplane.flags import APISERVER, ETCD
from raytide_sandbox.controlplane.processes import ControlPlane, PlaneSettings, find_binary

Json = dict[str, Any]
LOCATION = "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json"
"""Name of a kind's file, as kubeconform fills it in: lower case, and for the core group the version in place of the group."""
REFERENCE = "#/definitions/"
FORMAT = 1
"""Changes with what is written, so that older schemas are not used."""


def provide(crds: Path) -> Path:
    """The folder with the schemas; raises ControlPlaneError if there is no control plane."""
    binary = find_binary()
    server = Path(program(binary, APISERVER)[0]).stat()
    cache = cache_folder("kube-schemas")
    folder = cache / f"{server.st_size}-{server.st_mtime_ns}-{FORMAT}"
    with go_build.locked(cache):
        if not (folder / "complete").exists():
            write(folder, kinds_of_openapi(_ask_openapi(binary)))
            (folder / "complete").touch()
        for crd in sorted(crds.glob("*.yaml")):
            write(folder, kinds_of_crd(yaml.load(crd.read_text(), yaml.CSafeLoader)))
    return folder


def _ask_openapi(binary: Path) -> Json:
    with tempfile.TemporaryDirectory(prefix="raytide-schemas-") as folder:
        settings = PlaneSettings(parts=(ETCD, APISERVER), is_durable=False)
        with ControlPlane(Path(folder), binary, settings) as plane:
            address = urlsplit(plane.server)
            context = ssl.create_default_context(cadata=plane.authority.decode())
            client = http.client.HTTPSConnection(address.hostname or "", address.port, timeout=60, context=context)
            client.request("GET", "/openapi/v2", headers={"Authorization": f"Bearer {plane.admin_token}"})
            document: Json = json.loads(client.getresponse().read())
            client.close()
    return document


def write(folder: Path, kinds: Iterator[tuple[str, Json]]) -> None:
    """One file per kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in kinds:
        (folder / name).write_text(json.dumps(schema))


def file_name(group: str, version: str, kind: str) -> str:
    """Where kubeconform looks for this kind."""
    return f"{group or version}_{version}_{kind}.json".lower()


def kinds_of_openapi(document: Json) -> Iterator[tuple[str, Json]]:
    """File name and schema of each kind that the document names, with the definitions that it refers to."""
    definitions = {name: strict(schema) for name, schema in document["definitions"].items()}
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            needed = {each: definitions[each] for each in sorted(_reachable(name, definitions))}
            file = file_name(kind["group"], kind["version"], kind["kind"])
            yield file, {"$ref": f"{REFERENCE}{name}", "definitions": needed}


def kinds_of_crd(crd: Json) -> Iterator[tuple[str, Json]]:
    """File name and schema of each served version."""
    spec = crd["spec"]
    for version in spec["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"] |= {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
        }
        yield file_name(spec["group"], version["name"], spec["names"]["kind"]), schema


def strict(schema: Json) -> Json:
    """The schema with unknown fields as errors, and in the words of JSON Schema where OpenAPI has its own."""
    result = copy.deepcopy(schema)
    _make_strict(result)
    return result


def _make_strict(node: Any) -> None:
    if isinstance(node, list):
        for each in node:
            _make_strict(each)
    if not isinstance(node, dict):
        return
    if node.get("format") == "int-or-string" or node.get("x-kubernetes-int-or-string"):
        node.pop("format", None)
        node["type"] = ["integer", "string"]
    is_object = isinstance(node.get("properties"), dict) and node.get("type", "object") == "object"
    if is_object and not node.get("x-kubernetes-preserve-unknown-fields"):
        node.setdefault("additionalProperties", False)
    if node.pop("nullable", False) and isinstance(node.get("type"), str):
        node["type"] = [node["type"], "null"]
    for name, value in node.items():
        for each in value.values() if name in ("properties", "definitions") and isinstance(value, dict) else [value]:
            _make_strict(each)


def _reachable(name: str, definitions: Json) -> set[str]:
    found: set[str] = set()
    left = [name]
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left.extend(_references(definitions[each]))
    return found


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(reference := node.get("$ref"), str):
            yield reference.removeprefix(REFERENCE)
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from _references(each)

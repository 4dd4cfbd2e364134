"""Schemas of core Kubernetes types for the CRDs.

Reads `tools/generators/kubernetes-types.json`, the types that a RayCluster embeds as Kubernetes publishes them
(`api/openapi-spec/v3`, Apache-2.0), and returns them as a structural schema requires: references resolved, int-or-string marked,
embedded metadata reduced to the five keys that KubeRay keeps, defaults only where a type declares one.
`python tools/generators/kubernetes_types.py FOLDER` writes the file from a Kubernetes source tree. Used by crds.py.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("kubernetes-types.json")
Schema = dict[str, Any]

ROOTS = (
    "io.k8s.api.core.v1.PodTemplateSpec",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.networking.v1.IngressTLS",
    "io.k8s.api.networking.v1.NetworkPolicyIngressRule",
    "io.k8s.api.networking.v1.NetworkPolicyEgressRule",
)
DOCUMENTS = ("api__v1_openapi.json", "apis__networking.k8s.io__v1_openapi.json")
DROPPED = (
    "description",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-unions",
    "x-kubernetes-group-version-kind",
)
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
STRING: Schema = {"type": "string"}
SPECIAL: dict[str, Schema] = {
    "Quantity": {"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN},
    "IntOrString": {"x-kubernetes-int-or-string": True},
    "ObjectMeta": {
        "type": "object",
        "properties": {
            "annotations": {"type": "object", "additionalProperties": STRING},
            "finalizers": {"type": "array", "items": STRING},
            "labels": {"type": "object", "additionalProperties": STRING},
            "name": STRING,
            "namespace": STRING,
        },
    },
}


class KubernetesTypes:
    """The types in the source file."""

    def __init__(self) -> None:
        document = json.loads(SOURCE.read_text())
        self._types: dict[str, Schema] = document["types"]

    def schema(self, name: str) -> Schema:
        """The schema of a type with references resolved; a new value on each call."""
        if name in SPECIAL:
            return json.loads(json.dumps(SPECIAL[name]))
        return self._resolved(self._types[name])

    def _resolved(self, node: Schema) -> Schema:
        if "$ref" in node:
            own = {key: value for key, value in node.items() if key != "$ref"}
            return {**self.schema(node["$ref"]), **own}
        resolved = dict(node)
        if "properties" in node:
            resolved["properties"] = {key: self._resolved(child) for key, child in node["properties"].items()}
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                resolved[key] = self._resolved(node[key])
        return resolved


def reduced(node: Schema, *, is_required: bool) -> Schema:
    """A published schema without descriptions, patch hints and zero values that mean "no default"."""
    node = {key: value for key, value in node.items() if key not in DROPPED}
    for reference in node.pop("allOf", ()):
        node = {**reference, **node}
    if "$ref" in node:
        node["$ref"] = node["$ref"].rpartition(".")[2]
    if node.get("default") == {} or (is_required and not node.get("default")):
        node.pop("default", None)
    if "properties" in node:
        required = node.get("required", ())
        node["properties"] = {
            key: reduced(child, is_required=key in required) for key, child in node["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            node[key] = reduced(node[key], is_required=True)
    return node


def import_from(tree: Path) -> dict[str, Any]:
    """The content of the source file, from a Kubernetes source tree."""
    published: dict[str, Schema] = {}
    for name in DOCUMENTS:
        document = json.loads((tree / "api/openapi-spec/v3" / name).read_text())
        published.update(document["components"]["schemas"])
    types: dict[str, Schema] = {}
    pending = list(ROOTS)
    while pending:
        name = pending.pop()
        short = name.rpartition(".")[2]
        if short in types or short in SPECIAL:
            continue
        types[short] = reduced(published[name], is_required=False)
        pending += re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(published[name]))
    return {"kubernetes": tree.name.rpartition("@")[2], "types": dict(sorted(types.items()))}


def written(document: dict[str, Any]) -> str:
    """The text of the file: one type per line, for readable diffs."""
    lines = [
        f"  {json.dumps(name)}: {json.dumps(schema, sort_keys=True)}" for name, schema in document["types"].items()
    ]
    return f'{{"kubernetes": {json.dumps(document["kubernetes"])}, "types": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    SOURCE.write_text(written(import_from(Path(sys.argv[1]))))
    print(f"wrote {SOURCE.name}")

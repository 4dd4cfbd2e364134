"""Writes whose responses were recorded from the code of a real API server.

Reads the two recorded files: `schema.json` has a schema of its own and whole objects, `raycluster.json` a sound base and
merge patches (RFC 7386) on it. Gives each case as the write it stands for. Used by the recorder and by the tests.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1] / "golden" / "admission"
Json = dict[str, Any]


def read(name: str) -> Json:
    document: Json = json.loads((HERE / name).read_text())
    return document


def merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def expanded(document: Json, case: Json) -> Json:
    """The write a case stands for: `object`, `before` (None for a create), `is_status`."""
    is_status = case.get("is_status", False)
    if "base" not in document:
        return {"object": case["object"], "before": case.get("before"), "is_status": is_status}
    before = merged(document["base"], case["before"]) if "before" in case else None
    return {"object": merged(document["base"], case["change"]), "before": before, "is_status": is_status}


def digest(crd: Json) -> str:
    """What the answers depend on: the schemas without their prose. Another digest means: record again."""
    schemas = [version["schema"] for version in crd["spec"]["versions"]]
    return hashlib.sha256(json.dumps(_without_prose(schemas), sort_keys=True).encode()).hexdigest()


def _without_prose(node: Any) -> Any:
    if isinstance(node, dict):
        is_prose = isinstance(node.get("description"), str)
        return {key: _without_prose(child) for key, child in node.items() if not (is_prose and key == "description")}
    return [_without_prose(child) for child in node] if isinstance(node, list) else node


def crd_of(document: Json) -> Json:
    """A definition around the schema of `schema.json`."""
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": document["schema"]},
        "subresources": {"status": {}},
    }
    names = {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"}
    spec = {"group": "example.org", "names": names, "scope": "Namespaced", "versions": [version]}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**kind, "metadata": {"name": "things.example.org"}, "spec": spec}


def written(document: Json) -> str:
    """The file's text: one case a line, so that a diff reads well."""
    head = json.dumps({key: value for key, value in document.items() if key != "cases"}, ensure_ascii=False)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in document["cases"])
    return f'{head[:-1]}, "cases": [\n{lines}\n]}}\n'

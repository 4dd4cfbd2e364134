"""Objects generated from a CRD: a valid one in which some fields are replaced by any value that the schema allows.

Fields are drawn from the whole schema, pod templates included, so that fields are tested that no example uses. Values follow
type, enum, minimum, maximum and maxItems; strings are plausible words or nonsense. Sizes stay small;
support/hostile_objects.py has huge ones. Environment variables hold `SECRET`, which may appear in no log, event or status.
"""

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from support.manifest_files import body_of

Schema = dict[str, Any]
SECRET = "s3cr3t-of-a-user"
WORDS = (
    "",
    "0",
    "1",
    "2",
    "500m",
    "1Gi",
    "1e3",
    "-1",
    "a",
    "main",
    "worker",
    "ray",
    "http",
    "Always",
    "Never",
    "TCP",
    "ä",
    "a/b",
    "x" * 70,
)
MAX_SIZE = 4
"""Maximum of replicas, hosts and instances: each is a pod of the simulated cluster."""
SIZES = {
    "replicas",
    "minReplicas",
    "maxReplicas",
    "numOfHosts",
    "min-instance",
    "max-instance",
    "minInstance",
    "maxInstance",
}
MAX_ITEMS = 2
OPTIONAL = 0.2
"""Chance of each field of a drawn object that is not required."""
MAX_DEPTH = 6


class Generator:
    """Draws objects of one CRD's stored version around `example`."""

    def __init__(self, crd: Path, example: dict[str, Any], rng: random.Random) -> None:
        versions = msgspec.json.decode(body_of(crd))["spec"]["versions"]
        stored = next(version for version in versions if version["storage"])
        self._spec: Schema = stored["schema"]["openAPIV3Schema"]["properties"]["spec"]
        self._example = example
        self._rng = rng

    def draw(self, name: str) -> dict[str, Any]:
        """The example under that name, with one to six fields replaced."""
        obj = copy.deepcopy(self._example)
        obj["metadata"]["name"] = name
        for _ in range(self._rng.randint(1, 6)):
            self._replace_one(obj["spec"], self._spec, 0)
        return obj

    def _replace_one(self, value: Any, schema: Schema, depth: int) -> None:
        """Replace or add one field somewhere below `value`, which has this schema."""
        if isinstance(value, list):
            if value and isinstance(schema.get("items"), dict):
                self._replace_one(self._rng.choice(value), schema["items"], depth)
            return
        fields = schema.get("properties")
        if not isinstance(value, dict) or not fields:
            return
        deeper = [name for name, found in value.items() if isinstance(found, dict | list) and found and name in fields]
        if deeper and self._rng.random() < 0.7:
            name = self._rng.choice(deeper)
            self._replace_one(value[name], fields[name], depth + 1)
        else:
            name = self._rng.choice(sorted(fields))
            value[name] = self._value(name, fields[name], depth + 1)

    def _value(self, name: str, schema: Schema, depth: int) -> Any:
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        if schema.get("x-kubernetes-int-or-string"):
            return self._rng.choice([self._rng.randint(0, MAX_SIZE), "500m", "1Gi", "25%", "x"])
        draw = {"object": self._object, "array": self._array, "integer": self._integer, "string": self._string}
        if kind := draw.get(schema.get("type", "")):
            return kind(name, schema, depth)
        return self._rng.choice([True, False]) if schema.get("type") == "boolean" else self._rng.uniform(-1, 100)

    def _object(self, name: str, schema: Schema, depth: int) -> dict[str, Any]:
        if "properties" in schema:
            required = schema.get("required", ())
            kept = [
                field
                for field in schema["properties"]
                if field in required or (depth < MAX_DEPTH and self._rng.random() < OPTIONAL)
            ]
            return {field: self._value(field, schema["properties"][field], depth + 1) for field in kept}
        values = schema.get("additionalProperties")
        if not isinstance(values, dict):
            return {}
        keys = self._rng.sample(
            ["cpu", "memory", "nvidia.com/gpu", "num-cpus", "a", "ray.io/x"], self._rng.randint(0, 2)
        )
        return {key: self._value(name, values, depth + 1) for key in keys}

    def _array(self, name: str, schema: Schema, depth: int) -> list[Any]:
        most = min(schema.get("maxItems", MAX_ITEMS), MAX_ITEMS)
        least = schema.get("minItems", 0)
        return [
            self._value(name, schema["items"], depth + 1) for _ in range(self._rng.randint(least, max(least, most)))
        ]

    def _integer(self, name: str, schema: Schema, _depth: int) -> int:
        least, most = schema.get("minimum", -1), schema.get("maximum", 2**31 - 1)
        if name in SIZES:
            return self._rng.randint(max(least, 0), MAX_SIZE)
        return self._rng.choice([least, max(least, 0), max(least, 1), max(least, 30), most])

    def _string(self, name: str, schema: Schema, _depth: int) -> str:
        if name == "value":  # of an environment variable
            return SECRET
        if schema.get("format") == "date-time":
            return "2026-01-01T00:00:00Z"
        fits = [word for word in WORDS if schema.get("minLength", 0) <= len(word) <= schema.get("maxLength", 10**6)]
        return self._rng.choice(fits or ["a" * schema["minLength"]])


def texts(value: Any) -> Iterator[str]:
    """Every string in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for found in value.values():
            yield from texts(found)
    elif isinstance(value, list):
        for found in value:
            yield from texts(found)

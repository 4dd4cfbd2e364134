"""docs/cluster-yaml.md names every key of Ray's cluster YAML."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "cluster-yaml.md"


def _schema() -> Mapping[str, Any]:
    ray = find_spec("ray")
    if ray is None or ray.origin is None:
        pytest.skip("Ray is not installed")
    return json.loads((Path(ray.origin).parent / "autoscaler" / "ray-schema.json").read_text())


def _keys(schema: Mapping[str, Any]) -> Iterator[str]:
    for key, entry in schema.get("properties", {}).items():
        yield key
        yield from _keys(entry)
    for entry in schema.get("patternProperties", {}).values():
        yield from _keys(entry)


def test_every_key_of_the_schema_has_its_row():
    mentioned = {word for code in re.findall(r"`([^`]+)`", PAGE.read_text()) for word in re.findall(r"\w+", code)}
    keys = set(_keys(_schema()))
    assert {"available_node_types", "upscaling_speed", "docker", "ssh_user"} <= keys, "the schema was read"
    assert keys - mentioned == set()

"""meta.k8s.io/v1 Tables for kubectl.

`table` renders objects as a Table: built-in kinds by `printers.py`, custom kinds by the additionalPrinterColumns of
their definition, others by name and age. Pure; ages are relative to `now`. Called by `views.py` when a client asks for
`as=Table`.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from raytide_sandbox.apiserver.printing.printers import PRINTERS, Column, age

if TYPE_CHECKING:
    from raytide_sandbox.apiserver.registry import Served

Json = dict[str, Any]

_NAME_TEXT: Final = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically."
)
_AGE: Final = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_STEP: Final = re.compile(
    r"\.([A-Za-z0-9_$-]+)|\['([^']+)'\]|\[(\d+)\]|\[\?\(@\.([A-Za-z0-9_.]+)\s*==\s*[\"']([^\"']*)[\"']\)\]"
)


def table(served: "Served", objs: Sequence[Json], *, now: datetime, version: str, include: str) -> Json:
    """Build a Table of `objs`; `include` is what each row carries besides its cells (None, Metadata, Object)."""
    printer = None if served.structural is not None else PRINTERS.get(served.resource.key)
    if printer is not None:
        columns = [_definition(column) for column in printer.columns]
        rows = [printer.row(obj, now) for obj in objs]
    else:
        columns, rows = _by_paths(served.columns or (_AGE,), objs, now)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": columns,
        "rows": [_row(cells, obj, include) for cells, obj in zip(rows, objs, strict=True)],
    }


def _definition(column: Column) -> Json:
    is_name = column.name == "Name"
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if is_name else "",
        "description": _NAME_TEXT if is_name else "",
        "priority": column.priority,
    }


def _row(cells: list[Any], obj: Json, include: str) -> Json:
    row: Json = {"cells": cells}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": obj["metadata"],
        }
    return row


def _by_paths(columns: Sequence[Json], objs: Sequence[Json], now: datetime) -> tuple[list[Json], list[list[Any]]]:
    definitions = [_definition(Column("Name"))]
    definitions += [
        {
            "name": column["name"],
            "type": column.get("type", "string"),
            "format": column.get("format", ""),
            "description": column.get("description", ""),
            "priority": column.get("priority", 0),
        }
        for column in columns
    ]
    rows = [[obj["metadata"]["name"], *(_cell(column, obj, now) for column in columns)] for obj in objs]
    return definitions, rows


def _cell(column: Json, obj: Json, now: datetime) -> Any:
    found = json_path(column["jsonPath"], obj)
    if not found:
        return None
    value = found[0]
    kind = column.get("type", "string")
    if kind == "date":
        return age(value, now)
    if kind == "string" and not isinstance(value, str):
        return ",".join(str(item) for item in found) if not isinstance(value, dict | list) else str(value)
    if kind == "integer" and isinstance(value, float):
        return int(value)
    return value


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[tuple[str, str, str, str, str], ...]:
    text = path.strip().removeprefix("{").removesuffix("}")
    return tuple(_STEP.findall(text))


def json_path(path: str, obj: Json) -> list[Any]:
    """The values at a simple JSONPath: fields, indexes and `[?(@.type=="Ready")]`, as printer columns use them."""
    values: list[Any] = [obj]
    for field, quoted, index, filter_field, wanted in _steps(path):
        found: list[Any] = []
        for value in values:
            if (name := field or quoted) and isinstance(value, dict) and value.get(name) is not None:
                found.append(value[name])
            elif index and isinstance(value, list) and int(index) < len(value):
                found.append(value[int(index)])
            elif filter_field and isinstance(value, list):
                found += [item for item in value if isinstance(item, dict) and str(item.get(filter_field)) == wanted]
        values = found
    return values

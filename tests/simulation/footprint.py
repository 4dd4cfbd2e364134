"""Footprint of an operator in the simulation: how many items each of its containers holds, and how many bytes in all.

Walks from a controller over attributes, slots and containers, and stops at what does not belong to the product, such as the
transport. Two footprints of an idle operator with the same clusters are equal unless the product keeps something of what
happened in between. Used by test_soak.py (PF:P11).
"""

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from prometheus_client import CollectorRegistry

PLAIN = (str, bytes, int, float)
CONTAINERS = (dict, set, frozenset, list, tuple, deque)
ASYNCIO_QUEUES = (asyncio.Queue, asyncio.Event, asyncio.Condition, asyncio.Lock, asyncio.Semaphore)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What is reachable from a controller, and the tasks, watches and metrics of the process."""

    items: Mapping[str, int]
    """Path of a container -> items in it; containers of the same path count together."""
    objects: int
    """Objects without plain values: whether two equal strings are one object is up to the interpreter."""
    size_bytes: int
    tasks: int
    watches: int
    series: int
    """Time series of the product's metrics."""


def footprint(root: object, *, watches: int, registry: CollectorRegistry) -> Footprint:
    """The footprint of that controller now."""
    items: Counter[str] = Counter()
    objects, size_bytes, found = 0, 0, {id(root): root}
    waiting: deque[tuple[str, object]] = deque([("", root)])
    while waiting:
        path, obj = waiting.popleft()
        size_bytes += sys.getsizeof(obj)
        objects += not isinstance(obj, PLAIN)
        if isinstance(obj, (dict, set, frozenset, list, deque)):
            items[path] += len(obj)
        for name, child in _children(obj):
            if id(child) not in found and _is_followed(child):
                found[id(child)] = child
                waiting.append((f"{path}{name}", child))
    series = sum(len(metric.samples) for metric in registry.collect())
    return Footprint(dict(items), objects, size_bytes, len(asyncio.all_tasks()), watches, series)


def _children(obj: object) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, Mapping):
        yield from (("[]", part) for item in obj.items() for part in item)
    elif isinstance(obj, CONTAINERS):
        yield from (("[]", part) for part in obj)
    elif isinstance(obj, partial):
        yield from (("()", part) for part in (obj.func, *obj.args, *obj.keywords.values()))
    elif isinstance(obj, MethodType):
        yield "()", obj.__self__
    elif isinstance(obj, FunctionType):
        yield from (("()", cell.cell_contents) for cell in obj.__closure__ or ())
    else:
        yield from ((f".{name}", part) for name, part in vars(obj).items()) if hasattr(obj, "__dict__") else ()
        slots = {name for kind in type(obj).__mro__ for name in getattr(kind, "__slots__", ())}
        yield from ((f".{name}", getattr(obj, name)) for name in sorted(slots) if hasattr(obj, name))


def _is_followed(obj: object) -> bool:
    """Whether it is the product's, a container or a plain value: no class, no module, nothing of the simulation."""
    if isinstance(obj, (*CONTAINERS, *PLAIN, partial, MethodType, FunctionType, *ASYNCIO_QUEUES)):
        return True
    return not isinstance(obj, type) and type(obj).__module__.startswith("raytide.")

"""Effective requests, limits and node constraints of a pod spec.

Takes a pod's spec as JSON or decoded and returns its effective requests as kube-scheduler counts them (the sum of
containers and sidecars, or the largest init container; pod-level resources; overhead), the limits used for capacity
accounting (TJ §3 row 5), and its node constraints. Amounts are integers rounded up as Kubernetes does: `cpu` in
millicores, everything else in its own unit. An amount that is not a quantity raises QuantityError.

Tenants write pods, and the view of every pod in the cluster is kept, so what is kept of one is bounded (api/limits.py):
a pod with more matches no node, and counts with what it requests of CPU, memory and the first other resources. Equal
values share one object, which exists as long as a view that has it. Used by api/capacity.py and fairshare/
(FD:SEC3-2).
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from heapq import nsmallest
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

import msgspec

from raytide.api.limits import (
    MAX_AMOUNTS,
    MAX_CONSTRAINT_BYTES,
    MAX_CONSTRAINTS,
    MAX_CONTAINERS,
    MAX_RESOURCES,
    MAX_VALUES,
)
from raytide.api.quantity import Quantity

CPU: Final = "cpu"
PODS: Final = "pods"
HOST_PORT: Final = "host port "
"""Begins the name of the port of its node that a pod takes, which counts as one more resource: each node has one of it."""
_FIRST: Final = (CPU, "memory", "ephemeral-storage", PODS)
"""Resources that count whatever else is requested."""

Amounts: TypeAlias = Mapping[str, int]
"""Resource name -> amount; a missing name is zero. A pod counts 1 of `pods`."""
Written: TypeAlias = Mapping[str, str | int | float] | None
"""Quantities as written in manifests."""

NOTHING: Final[Amounts] = MappingProxyType({})


class PodToleration(NamedTuple):
    """One toleration of a pod, as Kubernetes reads it: an empty key with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeRequirement(NamedTuple):
    """One requirement on a node's labels (In, NotIn, Exists, DoesNotExist, Gt, Lt), or on its fields if `is_field`."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()
    is_field: bool = False


class PodConstraints(msgspec.Struct, frozen=True, weakref=True):
    """Node constraints of a pod: the whole selector, one of the affinity terms if there are any, and tolerations."""

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[NodeRequirement, ...], ...] = ()
    tolerations: tuple[PodToleration, ...] = ()


ANYWHERE: Final = PodConstraints()
NOWHERE: Final = (NodeRequirement("", "In"),)
"""A term that no node matches."""
TOO_LARGE: Final = PodConstraints(terms=(NOWHERE,), node_selector=(("", ""),))
"""Stands for more constraints or resources than are kept of a pod."""


class PodShape(NamedTuple):
    """Requests, limits and constraints of a pod; a container without a limit counts with its request (TJ §3 row 5)."""

    requests: Amounts
    limits: Amounts
    constraints: PodConstraints = ANYWHERE

    @property
    def is_too_large(self) -> bool:
        """Whether the pod has more constraints or resources than are kept of it; it matches no node."""
        return self.constraints is TOO_LARGE


# --- the JSON as the API sends it: only what is read, everything may be missing or null ------------------------------


class _Resources(msgspec.Struct, gc=False):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Port(msgspec.Struct, gc=False, rename="camel"):
    container_port: int = 0
    host_port: int | None = None
    protocol: str | None = None


class _Container(msgspec.Struct, gc=False, rename="camel"):
    resources: _Resources | None = None
    restart_policy: str | None = None
    ports: list[_Port] | None = None


class _Requirement(msgspec.Struct, gc=False):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(msgspec.Struct, gc=False, rename="camel"):
    match_expressions: list[_Requirement] | None = None
    match_fields: list[_Requirement] | None = None


class _Required(msgspec.Struct, gc=False, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(msgspec.Struct, gc=False):
    required: _Required | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(msgspec.Struct, gc=False, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Toleration(msgspec.Struct, gc=False):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class PodSpec(msgspec.Struct, gc=False, rename="camel"):
    """A pod's `spec` as a decoder type: the fields that affect capacity and placement."""

    node_name: str | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    resources: _Resources | None = None
    host_network: bool | None = None
    overhead: dict[str, str | int | float] | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: list[_Toleration] | None = None
    priority: int | None = None
    scheduling_gates: list[Any] | None = None


# --- requests and limits -------------------------------------------------------------------------------------------


def pod_shape(spec: Mapping[str, Any]) -> PodShape:
    """Requests, limits and constraints of a pod spec; raises msgspec.MsgspecError, or QuantityError."""
    return shape_of(msgspec.convert(spec, PodSpec))


def shape_of(spec: PodSpec) -> PodShape:
    """Requests, limits and constraints of a decoded pod spec; the requests contain one of `pods`."""
    init, main = _counted(spec.init_containers or []), _counted(spec.containers or [])
    requests = _effective(init, *([_requests(each.resources) for each in those] for those in (init, main)))
    limits = _effective(init, *([_limits(each.resources) for each in those] for those in (init, main)))
    if spec.resources is not None:
        requests, limits = _of_whole_pod(spec.resources, requests, limits)
    overhead = _parsed(spec.overhead)
    requests, limits = {**_sum(requests, overhead), PODS: 1, **_host_port(spec)}, _sum(limits, overhead)
    is_too_large = (
        len(requests) > MAX_RESOURCES
        or len(init) < len(spec.init_containers or ())
        or len(main) < len(spec.containers or ())
    )
    return PodShape(_shared(requests), _shared(limits), TOO_LARGE if is_too_large else _constraints(spec))


def _of_whole_pod(
    whole: _Resources, requests: dict[str, int], limits: dict[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Pod-level resources override the containers'; a pod-level limit is the request where nothing requests it."""
    asked, allowed = _parsed(whole.requests), _parsed(whole.limits)
    return {**allowed, **requests, **asked}, {**limits, **asked, **allowed}


def _host_port(spec: PodSpec) -> dict[str, int]:
    """The lowest port of its node that a container of it takes.

    The others are left out: pods that are alike, or have the same base port, collide in the lowest one, too.
    """
    taken = (
        (number, port.protocol or "TCP")
        for container in spec.containers or ()
        for port in container.ports or ()
        if (number := port.host_port or (port.container_port if spec.host_network else 0))
    )
    lowest = min(taken, default=None)
    return {} if lowest is None else {f"{HOST_PORT}{lowest[0]}/{lowest[1]}": 1}


def _counted(containers: list[_Container]) -> list[_Container]:
    """The first containers, within MAX_CONTAINERS and MAX_AMOUNTS."""
    kept, amounts = [], 0
    for each in containers[:MAX_CONTAINERS]:
        if each.resources is not None:
            amounts += min(len(each.resources.requests or ()), MAX_RESOURCES)
            amounts += min(len(each.resources.limits or ()), MAX_RESOURCES)
        if amounts > MAX_AMOUNTS:
            break
        kept.append(each)
    return kept


def _effective(init: list[_Container], of_init: list[dict[str, int]], of_main: list[dict[str, int]]) -> dict[str, int]:
    """The peak amounts: all containers and sidecars together, or one init container and the sidecars before it.

    In time linear in the pod: each container may request other resources.
    """
    together: dict[str, int] = {}
    peak: dict[str, int] = {}  # never below `together`
    for container, asked in zip(init, of_init, strict=True):
        for name, amount in asked.items():
            total = together.get(name, 0) + amount
            peak[name] = max(peak.get(name, 0), total)
            if container.restart_policy == "Always":
                together[name] = total
    for asked in of_main:
        for name, amount in asked.items():
            together[name] = together.get(name, 0) + amount
    return {name: max(peak.get(name, 0), together.get(name, 0)) for name in {**peak, **together}}


def _requests(resources: _Resources | None) -> dict[str, int]:
    """Requests of one container; a limit without a request is the request, as the API server defaults it."""
    if resources is None:
        return {}
    return {**_parsed(resources.limits), **_parsed(resources.requests)}


def _limits(resources: _Resources | None) -> dict[str, int]:
    """Limits of one container; a resource without a limit counts with its request."""
    if resources is None:
        return {}
    return {**_parsed(resources.requests), **_parsed(resources.limits)}


def _sum(one: dict[str, int], other: Mapping[str, int]) -> dict[str, int]:
    if not other:
        return one
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _parsed(written: Written) -> dict[str, int]:
    """At most one resource more than is kept: enough to see that there are too many."""
    names = written or {}
    if len(names) > MAX_RESOURCES + 1:
        names = {name: names[name] for name in nsmallest(MAX_RESOURCES + 1, names, key=_importance)}
    return {name: amount_of(str(text), in_millis=name == CPU) for name, text in names.items()}


def amounts_of(written: Written) -> Amounts:
    """Parsed amounts; equal mappings share one object."""
    return _shared(_parsed(written))


@lru_cache(maxsize=4096)
def amount_of(text: str, *, in_millis: bool) -> int:
    """One quantity as a whole number, rounded up; raises QuantityError."""
    quantity = Quantity.parse(text)
    return quantity.ceil_to_millis() if in_millis else quantity.ceil_to_int()


class _Shared(dict[str, int]):
    """Amounts that many pods share; unlike a dict it can be referenced weakly."""

    __slots__ = ("__weakref__",)


_shared_amounts: Final[WeakValueDictionary[tuple[tuple[str, int], ...], _Shared]] = WeakValueDictionary()


def _shared(amounts: dict[str, int]) -> Amounts:
    """The amounts, of at most MAX_RESOURCES resources; equal mappings share one object, because thousands of pods are alike."""
    if len(amounts) > MAX_RESOURCES:
        amounts = {name: amounts[name] for name in nsmallest(MAX_RESOURCES, amounts, key=_importance)}
    pairs = tuple(amounts.items())
    found = _shared_amounts.get(pairs)
    if found is None:
        found = _shared_amounts[pairs] = _Shared(pairs)
    return found


def _importance(name: str) -> tuple[bool, str]:
    return name not in _FIRST, name


# --- node constraints ----------------------------------------------------------------------------------------------


_shared_constraints: Final[WeakKeyDictionary[PodConstraints, ref[PodConstraints]]] = WeakKeyDictionary()


def _constraints(spec: PodSpec) -> PodConstraints:
    """Equal constraints share one object; TOO_LARGE stands for those above the limits."""
    if not (spec.node_selector or spec.affinity or spec.tolerations):
        return ANYWHERE
    if _values(spec.affinity) > MAX_VALUES:
        return TOO_LARGE
    count, size = 0, 0
    for text_bytes in _sizes(spec):
        count, size = count + 1, size + text_bytes
        if count > MAX_CONSTRAINTS or size > MAX_CONSTRAINT_BYTES:
            return TOO_LARGE
    constraints = PodConstraints(
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        terms=_terms(spec.affinity),
        tolerations=tuple(
            PodToleration(each.key or "", each.operator or "Equal", each.value or "", each.effect or "")
            for each in spec.tolerations or ()
        ),
    )
    known = _shared_constraints.get(constraints)
    found = None if known is None else known()
    if found is None:
        found = constraints
        _shared_constraints[constraints] = ref(constraints)
    return found


def _values(affinity: _Affinity | None) -> int:
    """How many values the required terms have; above the limit of terms, of the first ones."""
    terms = (_terms_of(affinity) or [])[: MAX_CONSTRAINTS + 1]
    each_of = (each for term in terms for each in (*(term.match_expressions or ()), *(term.match_fields or ())))
    return sum(len(each.values or ()) for each in each_of)


def _sizes(spec: PodSpec) -> Iterator[int]:
    """The length of each entry of the selector, the terms and the tolerations."""
    yield from (len(key) + len(value) for key, value in (spec.node_selector or {}).items())
    for term in _terms_of(spec.affinity) or ():
        yield 0
        for each in (*(term.match_expressions or ()), *(term.match_fields or ())):
            yield len(each.key) + sum(map(len, each.values or ()))
    yield from (len(each.key or "") + len(each.value or "") for each in spec.tolerations or ())


def _terms_of(affinity: _Affinity | None) -> list[_Term] | None:
    """The required terms; None if there is no such requirement."""
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    return None if required is None else required.node_selector_terms or []


def _terms(affinity: _Affinity | None) -> tuple[tuple[NodeRequirement, ...], ...]:
    written = _terms_of(affinity)
    if written is None:
        return ()
    terms = tuple(term for each in written if (term := _term(each)))
    return terms or (NOWHERE,)  # an empty term matches no node, as in Kubernetes


def _term(term: _Term) -> tuple[NodeRequirement, ...]:
    expressions = ((each, False) for each in term.match_expressions or ())
    fields = ((each, True) for each in term.match_fields or ())
    return tuple(
        NodeRequirement(each.key, each.operator, frozenset(each.values or ()), is_field)
        for each, is_field in (*expressions, *fields)
    )

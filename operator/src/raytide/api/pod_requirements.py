"""Effective requests, limits and node constraints of a pod spec.

Takes a pod's spec as JSON or decoded and returns its effective requests as kube-scheduler counts them (the sum of
containers and sidecars, or the largest init container; pod-level resources; overhead), the limits used for capacity
accounting (TJ §3 row 5), and its node constraints. Amounts are integers rounded up as Kubernetes does: `cpu` in
millicores, everything else in its own unit. An amount that is not a quantity raises QuantityError. Used by
api/capacity.py and fairshare/.
"""

from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from raytide.api.quantity import Quantity

CPU: Final = "cpu"
PODS: Final = "pods"

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
    values: tuple[str, ...] = ()
    is_field: bool = False


class PodConstraints(NamedTuple):
    """Node constraints of a pod: the whole selector, one of the affinity terms if there are any, and tolerations."""

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[NodeRequirement, ...], ...] = ()
    tolerations: tuple[PodToleration, ...] = ()


ANYWHERE: Final = PodConstraints()
NOWHERE: Final = (NodeRequirement("", "In"),)
"""A term that no node matches."""


class PodShape(NamedTuple):
    """Requests, limits and constraints of a pod; a container without a limit counts with its request (TJ §3 row 5)."""

    requests: Amounts
    limits: Amounts
    constraints: PodConstraints = ANYWHERE


# --- the JSON as the API sends it: only what is read, everything may be missing or null ------------------------------


class _Resources(msgspec.Struct, gc=False):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, gc=False, rename="camel"):
    resources: _Resources | None = None
    restart_policy: str | None = None


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
    requests = _effective(spec, [_requests(each.resources) for each in (*_init(spec), *_main(spec))])
    limits = _effective(spec, [_limits(each.resources) for each in (*_init(spec), *_main(spec))])
    if spec.resources is not None:
        requests, limits = _of_whole_pod(spec.resources, requests, limits)
    overhead = _parsed(spec.overhead)
    return PodShape(_shared({**_sum(requests, overhead), PODS: 1}), _shared(_sum(limits, overhead)), _constraints(spec))


def _of_whole_pod(
    whole: _Resources, requests: dict[str, int], limits: dict[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Pod-level resources override the containers'; a pod-level limit is the request where nothing requests it."""
    asked, allowed = _parsed(whole.requests), _parsed(whole.limits)
    return {**allowed, **requests, **asked}, {**limits, **asked, **allowed}


def _init(spec: PodSpec) -> list[_Container]:
    return spec.init_containers or []


def _main(spec: PodSpec) -> list[_Container]:
    return spec.containers or []


def _effective(spec: PodSpec, amounts: list[dict[str, int]]) -> dict[str, int]:
    """The peak amounts: all containers and sidecars together, or one init container and the sidecars before it."""
    init, main = _init(spec), amounts[len(_init(spec)) :]
    together: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container, asked in zip(init, amounts, strict=False):
        if container.restart_policy == "Always":
            together = _sum(together, asked)
            peak = _most(peak, together)
        else:
            peak = _most(peak, _sum(together, asked))
    for asked in main:
        together = _sum(together, asked)
    return _most(peak, together)


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


def _most(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    if not one:
        return other
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _parsed(written: Written) -> dict[str, int]:
    return {intern(name): amount_of(str(text), in_millis=name == CPU) for name, text in (written or {}).items()}


def amounts_of(written: Written) -> Amounts:
    """Parsed amounts; equal mappings share one object."""
    return _shared(_parsed(written))


@lru_cache(maxsize=4096)
def amount_of(text: str, *, in_millis: bool) -> int:
    """One quantity as a whole number, rounded up; raises QuantityError."""
    quantity = Quantity.parse(text)
    return quantity.ceil_to_millis() if in_millis else quantity.ceil_to_int()


def _shared(amounts: dict[str, int]) -> Amounts:
    """The same amounts; equal mappings share one object, because thousands of pods are alike."""
    return _shared_by(tuple(amounts.items()))


@lru_cache(maxsize=4096)
def _shared_by(pairs: tuple[tuple[str, int], ...]) -> Amounts:
    return dict(pairs)


# --- node constraints ----------------------------------------------------------------------------------------------


def _constraints(spec: PodSpec) -> PodConstraints:
    if not (spec.node_selector or spec.affinity or spec.tolerations):
        return ANYWHERE
    return _shared_constraints(
        PodConstraints(
            node_selector=tuple(sorted((spec.node_selector or {}).items())),
            terms=_terms(spec.affinity),
            tolerations=tuple(
                PodToleration(each.key or "", each.operator or "Equal", each.value or "", each.effect or "")
                for each in spec.tolerations or ()
            ),
        )
    )


@lru_cache(maxsize=1024)
def _shared_constraints(constraints: PodConstraints) -> PodConstraints:
    return constraints


def _terms(affinity: _Affinity | None) -> tuple[tuple[NodeRequirement, ...], ...]:
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    if required is None:
        return ()
    terms = tuple(term for each in required.node_selector_terms or () if (term := _term(each)))
    return terms or (NOWHERE,)  # an empty term matches no node, as in Kubernetes


def _term(term: _Term) -> tuple[NodeRequirement, ...]:
    return (
        *(NodeRequirement(each.key, each.operator, tuple(each.values or ())) for each in term.match_expressions or ()),
        *(NodeRequirement(each.key, each.operator, tuple(each.values or ()), True) for each in term.match_fields or ()),
    )

"""Resources of a worker group's node as Ray counts them.

Takes one group of the RayCluster spec as JSON and returns whole amounts by the table AS:C-8: the group's `resources`,
then `rayStartParams`, then limits and requests of container 0, rounded up. Unusual spellings are accepted (B-20):
escaped and plain JSON, fractions, exponents, JSON numbers. A value that is not a number raises `FieldError`, which names
the field and the fix. Pure; called by node_types.py for each group on its own.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Never

from raytide.api.gpu_resource import is_gpu
from raytide.api.quantity import Quantity, QuantityError

CPU: Final = "CPU"
GPU: Final = "GPU"
MEMORY: Final = "memory"
TPU: Final = "TPU"
NEURON_CORES: Final = "neuron_cores"

TPU_RESOURCE: Final = "google.com/tpu"
NEURON_RESOURCE: Final = "aws.amazon.com/neuroncore"
TPU_TOPOLOGY: Final = "cloud.google.com/gke-tpu-topology"
TPU_ACCELERATOR: Final = "cloud.google.com/gke-tpu-accelerator"

TPU_POD_TYPE: Final = "ray.io/tpu-pod-type"
TPU_TOPOLOGY_LABEL: Final = "ray.io/tpu-topology"
TPU_WORKER_ID: Final = "ray.io/tpu-worker-id"
TPU_SLICE_NAME: Final = "ray.io/tpu-slice-name"

TPU_GENERATION: Final = {
    "tpu-v4-podslice": "v4",
    "tpu-v5-lite-device": "v5litepod",
    "tpu-v5-lite-podslice": "v5litepod",
    "tpu-v5p-slice": "v5p",
    "tpu-v6e-slice": "v6e",
    "tpu7x": "v7x",
}
_SINGLE_CORE_GENERATIONS: Final = frozenset({"v5litepod", "v6e"})
_KNOWN: Final = {"cpu": CPU, "memory": MEMORY, "tpu": TPU}
"""Keys of a group's `resources` in lower case."""


class FieldError(ValueError):
    """An unreadable value; the message names the field, the value and what to write instead."""


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Whole amounts by Ray's resource name, which of them are guessed, and warnings for the user."""

    amounts: Mapping[str, int]
    """Without `CPU` if the spec does not determine it."""
    first: Mapping[str, int] = field(default_factory=dict)
    """Extra resources of each replica's first host: Ray gives worker 0 of a TPU slice a resource that marks the slice.
    """
    slice_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that Ray gives every host of such a slice."""
    guessed: frozenset[str] = frozenset()
    """Names whose amounts are not passed to Ray, so that a live node's amounts are preferred (V-8)."""
    warnings: tuple[str, ...] = ()
    """Values that were read, but that the user should correct."""


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where amounts are looked up, in this order."""

    group: Mapping[str, Any]
    """The group's own `resources`, under Ray's names."""
    params: Mapping[str, Any]
    """`rayStartParams`."""
    limits: Mapping[str, Any]
    requests: Mapping[str, Any]
    selector: Mapping[str, Any]
    """Labels that the template requires of Kubernetes nodes (`required_labels`)."""
    has_own_start: bool
    """The container starts Ray with its own command, so these amounts are not passed on."""


def node_resources(group: Mapping[str, Any]) -> NodeResources:
    """The amounts of one node (AS:C-8); raises `FieldError` for the first unreadable value."""
    sources = _sources(group)
    warnings: list[str] = []
    custom = _custom(sources, warnings)
    amounts: dict[str, int] = {}
    for name, param, resource in ((CPU, "num-cpus", "cpu"), (MEMORY, "memory", "memory")):
        found = _first(
            _own(sources, name),
            _param(sources, param, warnings),
            _limit(sources, resource),
            _request(sources, resource),
        )
        if found is not None:
            amounts[name] = found
    gpus = _first(_own(sources, GPU), _param(sources, "num-gpus", warnings), _gpu_limit(sources))
    if gpus is not None:
        amounts[GPU] = gpus
    tpus = _first(_own(sources, TPU), custom.get(TPU), _chips(sources, TPU_RESOURCE))
    pod_type = topology = ""
    if tpus is not None:
        amounts[TPU] = tpus
        pod_type, topology = _tpu_slice(sources.selector, warnings)
    cores = _chips(sources, NEURON_RESOURCE)
    if cores is not None and custom.keys().isdisjoint({TPU, NEURON_CORES}):
        amounts[NEURON_CORES] = cores
    amounts.update(custom)
    return NodeResources(
        amounts,
        {f"TPU-{pod_type}-head": 1} if pod_type else {},
        {TPU_POD_TYPE: pod_type, TPU_TOPOLOGY_LABEL: topology} if pod_type else {},
        _guessed(sources, amounts),
        tuple(warnings),
    )


def _sources(group: Mapping[str, Any]) -> _Sources:
    spec = mapping(mapping(group.get("template")).get("spec"))
    containers = spec.get("containers")
    ray = mapping(containers[0]) if isinstance(containers, list) and containers else {}
    resources = mapping(ray.get("resources"))
    annotations = mapping(mapping(mapping(group.get("template")).get("metadata")).get("annotations"))
    own_command = f"{ray.get('command')} {ray.get('args')}"
    return _Sources(
        group={_ray_name(name): amount for name, amount in mapping(group.get("resources")).items()},
        params=mapping(group.get("rayStartParams")),
        limits=mapping(resources.get("limits")),
        requests=mapping(resources.get("requests")),
        selector=required_labels(spec),
        has_own_start="ray start" in own_command or "ray.io/overwrite-container-cmd" in annotations,
    )


def _ray_name(name: str) -> str:
    """`cpu` as `CPU`, names of GPUs as `GPU`: the names the operator passes to Ray (RC:RSP-1)."""
    lower = name.lower()
    return GPU if is_gpu(lower) else _KNOWN.get(lower, name)


def _guessed(sources: _Sources, amounts: Mapping[str, int]) -> frozenset[str]:
    """Amounts Ray detects itself: memory without a limit (RC:RSP-11), and all of them if the user starts Ray."""
    if sources.has_own_start:
        return frozenset(amounts)
    is_memory_set = MEMORY in sources.group or MEMORY in sources.params or MEMORY in sources.limits
    return frozenset() if is_memory_set else frozenset({MEMORY})


# --- sources ---------------------------------------------------------------------------------------------------------


def _first(*found: int | None) -> int | None:
    return next((amount for amount in found if amount is not None), None)


def _own(sources: _Sources, name: str) -> int | None:
    return _amount(sources.group.get(name), f"resources[{name}]")


def _param(sources: _Sources, name: str, warnings: list[str]) -> int | None:
    given = sources.params.get(name)
    amount = _amount(given, f"rayStartParams[{name}]")
    if amount is not None and str(given).strip() != str(amount):
        warnings.append(
            f"rayStartParams[{name}] {given!r} is read as {amount}: Ray accepts integers only, set {amount}"
        )
    return amount


def _limit(sources: _Sources, name: str) -> int | None:
    return _amount(sources.limits.get(name), f"limits[{name}] of the first container")


def _request(sources: _Sources, name: str) -> int | None:
    return _amount(sources.requests.get(name), f"requests[{name}] of the first container")


def _gpu_limit(sources: _Sources) -> int | None:
    """The first nonzero amount of GPUs or MIG slices, limits before requests."""
    for place, amounts in (("limits", sources.limits), ("requests", sources.requests)):
        for name, given in amounts.items():
            if is_gpu(name):
                amount = _amount(given, f"{place}[{name}] of the first container")
                if amount:
                    return amount
    return None


def _chips(sources: _Sources, name: str) -> int | None:
    return _limit(sources, name) or _request(sources, name) or None


def _amount(given: Any, field: str) -> int | None:
    """A quantity rounded up to a whole number; None when it is absent."""
    if given is None:
        return None
    try:
        amount = Quantity.parse(given.strip() if isinstance(given, str) else given).ceil_to_int()
    except QuantityError:
        _reject(field, given, "set a number, such as 4 or 2Gi")
    if amount < 0:
        _reject(field, given, "set a number of at least 0")
    return amount


def _reject(field: str, given: Any, fix: str) -> Never:
    shown = repr(given)
    raise FieldError(f"{field} is {shown if len(shown) <= 80 else shown[:79] + '…'}, which is invalid: {fix}")


# --- custom resources ------------------------------------------------------------------------------------------------


def _custom(sources: _Sources, warnings: list[str]) -> dict[str, int]:
    """The group's other resources; without any `resources`, those of the start parameters (AS:C-8, C-10)."""
    if sources.group:
        return {
            name: amount
            for name, given in sources.group.items()
            if name not in {CPU, GPU, TPU, MEMORY} and (amount := _amount(given, f"resources[{name}]")) is not None
        }
    given = sources.params.get("resources")
    if given is None:
        return {}
    found: dict[str, int] = {}
    for name, number in _read_json(given).items():
        field = f"rayStartParams[resources][{name}]"
        amount = _amount(_reject(field, number, "set an integer") if number is None else number, field)
        found[name] = amount or 0
        if str(number) != str(amount):
            warnings.append(f"{field} {number} is read as {amount}: Ray accepts integers only, set {amount}")
    return found


def _read_json(given: Any) -> Mapping[str, Any]:
    """Parse a quoted JSON object with or without escaped quotes (AS:C-10); numbers are returned as text."""
    if isinstance(given, Mapping):
        return given
    text = str(given).strip().strip("'\"` ")
    for attempt in (text, text.replace("\\", "")):
        try:
            found = json.loads(attempt, parse_int=str, parse_float=str, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    _reject("rayStartParams[resources]", given, """set a JSON object in quotes, such as '{"widget": 2}'""")


# --- TPUs ------------------------------------------------------------------------------------------------------------


def _tpu_slice(selector: Mapping[str, Any], warnings: list[str]) -> tuple[str, str]:
    """The slice's pod type, such as `v4-16`, and its topology; both empty if unknown (AS:C-8)."""
    topology, accelerator = selector.get(TPU_TOPOLOGY), selector.get(TPU_ACCELERATOR)
    if topology is None or accelerator is None:
        warnings.append(
            f"nodeSelector lacks {TPU_TOPOLOGY} or {TPU_ACCELERATOR}: set both, or requests for a whole TPU slice are infeasible"
        )
        return "", ""
    generation = TPU_GENERATION.get(str(accelerator))
    if generation is None:
        return "", ""
    shape = str(topology).strip().lower()
    sides = shape.split("x")
    if not all(side.isascii() and side.isdigit() and len(side) < 6 for side in sides):
        warnings.append(f"nodeSelector[{TPU_TOPOLOGY}] {topology!r} is not a topology: set one such as 2x2x4")
        return "", ""
    cores = 1 if generation in _SINGLE_CORE_GENERATIONS else 2
    for side in sides:
        cores *= int(side)
    return f"{generation}-{cores}", shape


# --- labels of Kubernetes nodes --------------------------------------------------------------------------------------


def required_labels(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Labels of the Kubernetes nodes that a pod spec admits: its `nodeSelector`, and what its required node affinity fixes.

    An affinity fixes a label if each of its alternative terms admits a single value of it, the same one (`operator: In`).
    """
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    terms = mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution")).get("nodeSelectorTerms")
    fixed = [set(_single_values(mapping(term))) for term in terms] if isinstance(terms, list) else []
    return {**dict(set.intersection(*fixed) if fixed else ()), **mapping(spec.get("nodeSelector"))}


def _single_values(term: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    expressions = term.get("matchExpressions")
    for expression in map(mapping, expressions if isinstance(expressions, list) else ()):
        match expression:
            case {"key": str(key), "operator": "In", "values": [str(value)]}:
                yield key, value


def mapping(found: Any) -> Mapping[str, Any]:
    """The object itself if it is a JSON object, else an empty one."""
    return found if isinstance(found, Mapping) else {}

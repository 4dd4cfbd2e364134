"""Resource shapes: requests and demands as numbers.

Turns requests into shapes (whole amounts by resource index, label selectors as a rank, and Ray's placement order) and
demands into runs (how often each shape is requested). Equal requests share one shape, so that all later work is per
shape instead of per request. Pure; read by node_classes.py and packing.py (AS:S-13, AS:S-15).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from raytide.autoscaler.model import RESOURCE_UNIT_SCALING, Amounts, Demand, Request, SchedulingRequest, Status
from raytide.autoscaler.scheduling.devices import together

ACCELERATORS: Final = {
    name: 1 << number
    for number, name in enumerate(
        ("GPU", "TPU", "neuron_cores", "HPU", "NPU", "TTNPU", "FURIOSA", "RBLN", "MBLT"),
    )
}
"""The bit of each accelerator, by its resource name in Ray.

They are also Ray's resources that consist of devices (`RAY_predefined_unit_instance_resources`,
`RAY_custom_unit_instance_resources`): a request for less than one needs a part of a single device, any other whole ones.
"""

MAX_DEVICES: Final = 64
"""A resource of which a node has more is not planned by device."""

Needs: TypeAlias = tuple[tuple[int, int], ...]
"""(resource index, amount > 0)."""


@dataclass(slots=True, eq=False)
class Shape:
    """One request that may be demanded many times."""

    request: Request
    needs: Needs
    mask: int
    """The resources of `needs`, one bit each."""
    devices: tuple[tuple[slice, int], ...]
    """(place of the devices among the free amounts, amount) of each need that is planned by device."""
    accelerators: int
    """Accelerators it names, one bit each (AS:S-21)."""
    fixed_rank: int | None
    """The rank of the matching selector, if it is the same on every node."""
    order: tuple[int, int, int, int, Amounts]
    """Sort key of placement, descending (AS:S-15)."""

    @property
    def is_label_bound(self) -> bool:
        """Whether a node's labels decide if it fits."""
        return self.fixed_rank is None or self.request.anti_affinity is not None

    def rank(self, labels: Mapping[str, str]) -> int:
        """How much a node with these labels is preferred; higher is better.

        As many points as there are selectors if the first one matches, one if only the last does, 0 if none does.
        """
        if self.fixed_rank is not None:
            return self.fixed_rank
        selectors = self.request.selectors
        for position, selector in enumerate(selectors):
            if all(constraint.holds(labels) for constraint in selector):
                return len(selectors) - position
        return 0

    def has_match(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels may hold it, regardless of capacity and anti-affinity."""
        return not self.request.selectors or self.rank(labels) > 0


@dataclass(slots=True)
class Run:
    """The same shape, `count` times in a row."""

    shape: Shape
    count: int


class RequestedNames:
    """The resources and labels named by any request; all others make no difference between nodes.

    An amount of 0 names nothing.
    """

    _planned_by_device = frozenset(ACCELERATORS)

    def __init__(self, inputs: SchedulingRequest) -> None:
        steps = list(_steps(inputs))
        requests = {request for step in steps for request in step}
        self.resources: tuple[str, ...] = tuple(sorted({name for r in requests for name, _ in self._named(r)}))
        self.index: dict[str, int] = {name: number for number, name in enumerate(self.resources)}
        self.devices: Mapping[int, slice] = self._places_of_devices(inputs, requests)
        """By resource index, the place of the free amount of each device in those of a node."""
        mentioned = Counter(key for step in steps for key in {key for r in step for key in _label_keys(r)})
        topologies = (gang.topology.label for gang in inputs.gangs if gang.topology is not None)
        self.labels: frozenset[str] = frozenset(mentioned).union(topologies)
        self.lasting_labels: frozenset[str] = frozenset(key for key, times in mentioned.items() if times > 1)
        """Named by more than one step: a label one step adds may constrain a later one."""
        self._shapes: dict[Request, Shape] = {}

    def shape(self, request: Request) -> Shape:
        """The one shape of all equal requests."""
        known = self._shapes.get(request)
        if known is None:
            known = self._shapes[request] = self._build(request)
        return known

    def runs(self, demands: Iterable[Demand]) -> list[Run]:
        """Demands in Ray's placement order, equal ones joined."""
        totals: Counter[Shape] = Counter()
        for demand in demands:
            if demand.count > 0:
                totals[self.shape(demand.request)] += demand.count
        asked = sorted((Run(s, n) for s, n in totals.items()), key=lambda run: _sort_key(run.shape.request))
        return sorted(asked, key=lambda run: run.shape.order, reverse=True)

    def _places_of_devices(self, inputs: SchedulingRequest, requests: Iterable[Request]) -> dict[int, slice]:
        """Only of resources of which a request needs a fraction: whole devices can be added up."""
        unit = RESOURCE_UNIT_SCALING
        fractions = {name for r in requests for name, n in r.amounts if n % unit and name in self._planned_by_device}
        places: dict[int, slice] = {}
        first = len(self.resources)
        for name in sorted(fractions):
            count = -(-max((dict(total).get(name, 0) for total in _totals(inputs)), default=0) // unit)
            if 0 < count <= MAX_DEVICES:
                places[self.index[name]] = slice(first, first + count)
                first += count
        return places

    @staticmethod
    def _named(request: Request) -> Amounts:
        """Amounts of the resources that a request names."""
        return positive(request.amounts)

    def _build(self, request: Request) -> Shape:
        index, selectors, named = self.index, request.selectors, self._named(request)
        needs = tuple((index[name], amount) for name, amount in named if amount > 0)
        is_fixed = not selectors or not selectors[0]
        constraints = (request.affinity is not None) + (request.anti_affinity is not None)
        order = (
            constraints,
            len(selectors[0]) if selectors else 0,
            len(named),
            sum(amount for _, amount in named),
            named,
        )
        return Shape(
            request,
            needs,
            sum(1 << resource for resource, _ in needs),
            tuple((self.devices[resource], amount) for resource, amount in needs if resource in self.devices),
            accelerators_in(named),
            len(selectors) if is_fixed else None,
            order,
        )


def positive(amounts: Amounts) -> Amounts:
    """The amounts without those of 0."""
    return tuple(pair for pair in amounts if pair[1] > 0)


def accelerators_in(amounts: Amounts) -> int:
    """Accelerators named in the amounts, one bit each."""
    return sum(ACCELERATORS.get(name, 0) for name, _ in amounts)


def merged_by_affinity(bundles: Sequence[Request], *, is_by_device: bool = True) -> tuple[Request, ...]:
    """Merge bundles with the same affinity into one request each, after all other bundles (AS:S-13).

    `is_by_device`: parts of devices count as whole devices where no device holds several of them.
    """
    others = [bundle for bundle in bundles if bundle.affinity is None]
    found: dict[object, list[Request]] = {}
    for bundle in bundles:
        if bundle.affinity is not None:
            alike = tuple(tuple(replace(c, values=tuple(sorted(c.values))) for c in s) for s in bundle.selectors)
            found.setdefault((bundle.affinity, alike), []).append(bundle)
    return (*others, *(_merged(alike, is_by_device=is_by_device) for alike in found.values()))


def _merged(bundles: Sequence[Request], *, is_by_device: bool) -> Request:
    """Several bundles added up; the first one's selectors count."""
    amounts: dict[str, list[int]] = {}
    for bundle in bundles:
        for name, amount in bundle.amounts:
            amounts.setdefault(name, []).append(amount)
    sums = {name: (together if is_by_device and name in ACCELERATORS else sum)(n) for name, n in amounts.items()}
    return replace(bundles[0], amounts=tuple(sorted(sums.items())))


def _steps(inputs: SchedulingRequest) -> Iterable[set[Request]]:
    """The requests of each step of the decision; later steps see what earlier ones placed."""
    yield {demand.request for demand in inputs.constraint or ()}
    yield {demand.request for demand in inputs.tasks}
    for gang in inputs.gangs:
        yield set(gang.bundles)


def _totals(inputs: SchedulingRequest) -> Iterable[Amounts]:
    """The resources of every node that the decision may use."""
    for one in inputs.types:
        yield one.resources
        yield one.first_resources
    for instance in inputs.instances:
        if instance.status is Status.RAY_RUNNING:
            yield instance.total


def _label_keys(request: Request) -> Iterable[str]:
    for selector in request.selectors:
        for constraint in selector:
            yield constraint.key
    if request.anti_affinity is not None:
        yield request.anti_affinity[0]


def _sort_key(request: Request) -> tuple[object, ...]:
    """Sort key of a resource request, so that the order in which Ray reports its demand has no effect."""
    selectors = tuple(tuple((c.key, c.values, c.is_in, c.is_known) for c in s) for s in request.selectors)
    return (positive(request.amounts), selectors, request.affinity or (), request.anti_affinity or (), request.amounts)

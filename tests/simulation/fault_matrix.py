"""Fault matrix: every fault at every call and watch event of every scenario.

As in Sieve: a scenario runs once without faults, and its calls and watch events are recorded; then it runs once for each
fault at each of them. The final state must equal that of the reference: the same objects and the same numbers of created and
deleted pods, within 60 s of virtual time after the fault, without a violation and without a further write of a restarted
operator. Points are numbered; a run in which the fault was not injected fails too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from support import virtual_time
from support.faults.script import Call, Line, Rule
from support.faults.types import (
    FORBIDDEN,
    UNAUTHORIZED,
    Answer,
    CallFault,
    Close,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Error,
    Garbage,
    HalfLine,
    Hang,
    Kill,
    LoseAnswer,
    LoseRequest,
    Overtake,
    Reset,
    Stale,
    Stall,
    WatchFault,
)

from simulation.environment import ESR_S, Environment, log_errors_as_violations
from simulation.scenarios import Scenario
from simulation.simulated_kube import Kubelets
from simulation.simulated_ray import (
    JOIN_S,
    PLACE_S,
    GcsAnswerLost,
    GcsFault,
    GcsPermissionDenied,
    GcsRestart,
    GcsSlow,
    GcsUnavailable,
)

SEED = 7
KUBELETS = Kubelets(start_s=(0.1, 1.0), end_s=(0.1, 0.5, 2.0))
REQUEST_TIMEOUT_S = 10.0
"""The request timeout of the operator."""
WATCH_SILENCE_S = 60.0
"""The silence after which a watch counts as broken."""
CUSTOM_RESOURCES = ("rayclusters", "trainingjobs")
"""Resources that are read live before an action."""
HIDING_STATE = ("F4", "F5", "F6", "F14")
"""Rows of faults that hide objects from the operator; without permission to read nodes, gangs start at any capacity."""
FORBIDDEN_FOR_S = 20.0
STATUSES = (
    Answer(409),
    Answer(422),
    Answer(429, retry_after_s=2),
    Answer(500),
    Answer(503),
    Answer(504),
)
GCS_FAULTS: dict[str, tuple[GcsFault, ...]] = {
    "GetClusterResourceState": (GcsUnavailable(15.0), GcsSlow(3.0), GcsSlow(15.0), GcsPermissionDenied(), GcsRestart()),
    "DrainNode": (GcsUnavailable(15.0), GcsSlow(3.0), GcsSlow(15.0), GcsPermissionDenied(), GcsAnswerLost()),
    "ReportAutoscalingState": (GcsPermissionDenied(), GcsAnswerLost()),
}
"""GCS call -> its faults."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """One fault at one place of one scenario."""

    matrix_row: str
    """F1 … F7, F13, F14."""
    fault: CallFault | WatchFault | GcsFault
    number: int
    """Of the call or watch event."""
    description: str
    """The call or watch event in the reference run."""
    apply: Callable[[Environment, "Point"], None]
    duration_s: float = 0.0
    recovery_s: float = 0.0
    """How long back-offs may last after it: until then an equal state may still be the old one."""
    has_stale_start: bool = False

    def __str__(self) -> str:
        return f"{self.matrix_row} {self.fault} at {self.number}: {self.description}"


@dataclass(slots=True)
class RunResult:
    """Outcome of one run."""

    violations: list[str]
    comparable_state: dict[str, Any]
    counts: dict[str, Any]
    calls: list[Call] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    gcs_calls: list[str] = field(default_factory=list)
    """The names of the GCS calls."""
    faults_met: list[str] = field(default_factory=list)
    took_s: float = 0.0
    """From the end of the fault to the final state of the reference."""
    writes: list[str] = field(default_factory=list)


# --- injection ------------------------------------------------------------------------------------------------


def at_call(env: Environment, point: Point) -> None:
    """Inject the fault at this call."""
    env.script.of_calls.append(Rule(point.fault, lambda call: call.number == point.number))


def at_line(env: Environment, point: Point) -> None:
    """Inject the fault at this watch event."""
    env.script.of_lines.append(Rule(point.fault, lambda line: line.number == point.number))


def kill_both_at_call(env: Environment, point: Point) -> None:
    """Kill operator and autoscaler together at this call."""
    env.kills_both = True
    at_call(env, point)


def at_gcs(env: Environment, point: Point) -> None:
    """Inject the fault at this call of the GCS."""
    env.inject_gcs_fault(point.number, point.fault)


def drop_bookmarks_from(env: Environment, point: Point) -> None:
    """Drop all bookmarks from this watch event on."""
    seen = [False]

    def is_bookmark_after(line: Line) -> bool:
        seen[0] = seen[0] or line.number >= point.number
        return seen[0] and line.type == "BOOKMARK"

    env.script.of_lines.append(Rule(point.fault, is_bookmark_after, times=None))


def at_calls_from(env: Environment, point: Point) -> None:
    """Inject the fault at every call from this one on, for `FORBIDDEN_FOR_S`."""

    def start_recording(call: Call) -> bool:
        if call.number == point.number:
            rule.until_s = env.disturbed_until_s = env.loop.time() + FORBIDDEN_FOR_S
        return call.number >= point.number

    rule = Rule(point.fault, start_recording, times=None)
    env.script.of_calls.append(rule)


def relist_stale(env: Environment, point: Point) -> None:
    """The watch expires at this event, and the next list is stale."""
    env.script.of_lines.append(Rule(Error(410), lambda line: line.number == point.number))
    plural = point.description.split()[1]
    env.script.of_calls.append(
        Rule(point.fault, lambda call: call.is_list and call.plural == plural and env.script.met)
    )


def restart_with_stale_lists(env: Environment, point: Point) -> None:
    """Kill the operator at this watch event; the first lists of its successor are stale (Sieve's stale state)."""

    def is_first_list(call: Call) -> bool:
        return call.is_list and bool(env.script.met)

    def kill(line: Line) -> bool:
        if line.number != point.number:
            return False
        env.loop.call_soon(env.kill)
        return True

    env.script.of_lines.append(Rule(Cut(), kill))
    for plural in ("pods", "services", "configmaps", *CUSTOM_RESOURCES):
        env.script.of_calls.append(
            Rule(point.fault, lambda call, plural=plural: is_first_list(call) and call.plural == plural)
        )


def evenly(found: Sequence[T], most: int) -> list[T]:
    """At most so many of them, spread evenly, the first and the last included."""
    if len(found) <= most:
        return list(found)
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]


def fault_points(reference: RunResult, most: int | None = None) -> Iterator[Point]:
    """Every fault at every point; with `most`, at so many calls, events, reads and writes."""
    calls, lines = reference.calls, reference.lines
    writes = [call for call in calls if call.is_write and call.plural != "events"]
    reads = [call for call in calls if call.method == "GET" and call.plural in CUSTOM_RESOURCES and call.name]
    if most is not None:
        calls, lines, writes, reads = (evenly(each, most) for each in (calls, lines, writes, reads))
    for call in writes:
        yield from (_at(call, "F1", fault) for fault in (Kill(), Kill(is_after=True)))
    for call in calls:
        yield from (_at(call, "F2", fault) for fault in STATUSES)
        yield from (_at(call, "F3", fault) for fault in (LoseRequest(), LoseAnswer(), Reset()))
    for line in lines:
        yield from (_at_line(line, "F4", fault) for fault in (Drop(), Duplicate(), Stall(5.0), Overtake()))
    for line in evenly(lines, 5):
        streams = (Close(), Cut(), Error(410), Error(500), Garbage(), HalfLine(), HalfLine(is_cut=True))
        yield from (_at_line(line, "F5", fault) for fault in streams)
        yield _at_line(line, "F5", Hang())
        yield Point("F5", Drop(is_silent=True), line.number, str(line), drop_bookmarks_from)
    for lag in (Stale(lag_changes=1), Stale(lag_s=1.0), Stale(lag_s=30.0)):
        yield from (_at(call, "F6", lag) for call in evenly(reads, 5))
        yield from (Point("F6", lag, line.number, str(line), relist_stale) for line in evenly(lines, 3))
        yield from (
            Point("F6", lag, line.number, str(line), restart_with_stale_lists, has_stale_start=True)
            for line in evenly(lines, 3)
        )
    for call in (*reads, *writes):
        yield _at(call, "F7", Delay(5.0))
    for call in evenly(calls, 3):
        for fault in (FORBIDDEN, UNAUTHORIZED):
            yield Point("F14", fault, call.number, str(call), at_calls_from, recovery_s=ESR_S)
    if reference.gcs_calls:
        yield from _points_with_autoscaler(reference, writes)


def _points_with_autoscaler(reference: RunResult, writes: Sequence[Call]) -> Iterator[Point]:
    """Points for environments with an autoscaler: both processes are killed together, and faults of the GCS."""
    for call in evenly(writes, 5):
        yield from (
            Point("F1", fault, call.number, f"both at {call}", kill_both_at_call) for fault in (Kill(), Kill(True))
        )
    for name, faults in GCS_FAULTS.items():
        numbers = [number for number, gcs_calls in enumerate(reference.gcs_calls) if gcs_calls == name]
        for number in evenly(numbers, 5):
            yield from (Point("F13", fault, number, name, at_gcs, duration_s=duration_s(fault)) for fault in faults)


def _at(call: Call, matrix_row: str, fault: CallFault) -> Point:
    return Point(matrix_row, fault, call.number, str(call), at_call, duration_s=duration_s(fault))


def _at_line(line: Line, matrix_row: str, fault: WatchFault) -> Point:
    return Point(matrix_row, fault, line.number, str(line), at_line, duration_s=duration_s(fault))


def duration_s(fault: CallFault | WatchFault | GcsFault) -> float:
    """How long the fault lasts after it was injected."""
    match fault:
        case GcsUnavailable(for_s) | GcsSlow(for_s):
            return for_s
        case GcsRestart():
            return JOIN_S[1] + PLACE_S[1]
        case LoseRequest() | LoseAnswer():
            return REQUEST_TIMEOUT_S
        case Delay(for_s) | Stall(for_s):
            return for_s
        case Overtake(longest_s):
            return longest_s
        case Hang():
            return WATCH_SILENCE_S
    return 0.0


# --- running =-------------------------------------------------------------------------------------------------------------


def run_without_fault(scenario: Scenario) -> RunResult:
    """Run the scenario without a fault, as the reference."""

    async def run(env: Environment) -> RunResult:
        env.on_recording_start = lambda: setattr(env.script, "is_recording", True)
        await scenario.run(env)
        await env.settle()
        await env.pass_time(env.recorded_for_s)
        calls, lines, gcs_calls = list(env.script.calls), list(env.script.lines), list(env.gcs_calls())
        await env.pass_time(20.0 - env.recorded_for_s)
        result = RunResult([], env.comparable_state(), env.counts(), calls, lines, gcs_calls)
        await check_no_further_writes(env)
        return result

    return _run(run, scenario.environment)


def run_with_fault(scenario: Scenario, reference: RunResult, point: Point) -> RunResult:
    """Run the scenario with one fault; `violations` has the differences from the reference."""

    async def run(env: Environment) -> RunResult:
        env.checks.has_stale_start = point.has_stale_start
        env.checks.has_full_view = point.matrix_row not in HIDING_STATE
        env.fault_lasts_s = point.duration_s
        writes_before: list[int] = []

        def start_recording() -> None:
            point.apply(env, point)
            writes_before.append(len(env.checks.writes))

        env.on_recording_start = start_recording
        await scenario.run(env)
        await env.wait_for_faults()
        await env.pass_time(point.recovery_s)
        took_s = await wait_for_reference_state(env, reference)
        result = RunResult([], env.comparable_state(), env.counts(), faults_met=list(env.script.met), took_s=took_s)
        if scenario.has_exact_counts and not point.has_stale_start and result.counts != reference.counts:
            env.checks.add_violation(f"other pods were created and deleted: {result.counts}, not {reference.counts}")
        if scenario.is_quiet and not point.has_stale_start and (later := accepted_writes(env, writes_before[0])):
            env.checks.add_violation(f"writes in the desired state: {later[:5]}")
        if not env.has_met_fault() and point.apply is not drop_bookmarks_from:
            env.checks.add_violation("the fault was not injected")
        await check_no_further_writes(env)
        return result

    return _run(run, scenario.environment)


async def wait_for_reference_state(env: Environment, reference: RunResult) -> float:
    """Wait for the final state of the reference; a violation if it takes too long. Returns the seconds."""
    took_s = await env.settle()
    while not env.checks.limit_reached.is_set() and (
        difference := first_difference(env.comparable_state(), reference.comparable_state)
    ):
        if took_s > env.esr_s:
            env.checks.add_violation(
                f"the state differs from the reference {env.esr_s:.0f} s after the last fault: {difference}"
            )
            break
        await env.pass_time(1.0)
        took_s += 1.0
    return took_s


def first_difference(one: Any, other: Any, path: str = "") -> str:
    """The first difference of two values, with its path; empty if they are equal."""
    if one == other:
        return ""
    if isinstance(one, dict) and isinstance(other, dict):
        places = [first_difference(one.get(key), other.get(key), f"{path}.{key}") for key in sorted({*one, *other})]
        return next((place for place in places if place), "")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        places = [first_difference(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True))]
        return next((place for place in places if place), "")
    return f"{path}: {one!r}, in the reference {other!r}"


def accepted_writes(env: Environment, since: int) -> list[str]:
    """The writes that the API server accepted, without those rejected for a stale version, for instance."""
    return [write for write in env.checks.writes[since:] if write.endswith(("-> 200", "-> 201"))]


async def check_no_further_writes(env: Environment) -> None:
    """Check that a restarted operator writes nothing (RM:I19)."""
    env.script.clear()
    await env.pass_time(10.0)
    before = len(env.checks.writes)
    env.kill()
    await env.pass_time(10.0)
    if later := accepted_writes(env, before):
        env.checks.add_violation(f"writes of a restarted operator in the desired state: {later[:5]}")


def _run(run: Callable[[Environment], Any], kind: type[Environment]) -> RunResult:
    """Run it in a new event loop with virtual time."""

    async def run_once() -> RunResult:
        env = kind(SEED, kubelets=KUBELETS)
        with log_errors_as_violations(env.checks):
            env.open()
            result: RunResult = await run(env)
            await env.close()
        result.violations, result.writes = env.checks.violations, env.checks.writes
        return result

    return virtual_time.run(run_once())

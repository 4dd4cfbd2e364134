"""Does every life end the same, whatever goes wrong once?

Learn, then inject, as Sieve does: a scenario is told once without faults, and its calls and watch lines are written down;
then once more for each fault at each of them. The end must be the reference's: the same objects, the same number of pods
made and gone, within 60 s of virtual time after the fault, no invariant violated on the way, and nothing left to write for
an operator that is started afresh. Points are numbered; a run that does not meet what was learned is red too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from raytide_sandbox.faults.script import Call, Line, Rule
from raytide_sandbox.faults.types import (
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
from support import virtual_time

from simulation.ray_world import JOIN_S, PLACE_S, Away, Denied, GcsFault, NoAnswer, Reborn, Slow
from simulation.scenarios import Scenario
from simulation.stage import ESR_S, Stage, heard_by
from simulation.world import Kubelets

SEED = 7
KUBELETS = Kubelets(start_s=(0.1, 1.0), end_s=(0.1, 0.5, 2.0))
PATIENCE_S = 10.0
"""How long the operator waits for an answer."""
SILENCE_S = 60.0
"""The silence after which a watch counts as cut."""
CUSTOM = ("rayclusters", "trainingjobs")
"""What is read live before it is acted upon."""
BLINDING = ("F4", "F5", "F6", "F14")
"""What keeps the operator from seeing what there is; without the right to read nodes, gangs begin whether or not there is room."""
WITHDRAWN_S = 20.0
STATUSES = (
    Answer(409),
    Answer(422),
    Answer(429, retry_after_s=2),
    Answer(500),
    Answer(503),
    Answer(504),
)
GCS_FAULTS: dict[str, tuple[GcsFault, ...]] = {
    "GetClusterResourceState": (Away(15.0), Slow(3.0), Slow(15.0), Denied(), Reborn()),
    "DrainNode": (Away(15.0), Slow(3.0), Slow(15.0), Denied(), NoAnswer()),
    "ReportAutoscalingState": (Denied(), NoAnswer()),
}
"""What may go wrong with which call."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """One fault at one place of one scenario."""

    matrix: str
    """F1 … F7, F13, F14."""
    fault: CallFault | WatchFault | GcsFault
    number: int
    """Of the call or line."""
    learned: str
    """What was there in the reference run."""
    apply: Callable[[Stage, "Point"], None]
    lasts_s: float = 0.0
    rests_s: float = 0.0
    """How long back-offs may go on after it: until then an end that looks right may still be the old one."""
    is_past_believed: bool = False

    def __str__(self) -> str:
        return f"{self.matrix} {self.fault} at {self.number}: {self.learned}"


@dataclass(slots=True)
class Told:
    """How a run went."""

    violations: list[str]
    portrait: dict[str, Any]
    counts: dict[str, Any]
    calls: list[Call] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The calls of the GCS."""
    met: list[str] = field(default_factory=list)
    took_s: float = 0.0
    """From the last fault to the reference's end."""
    writes: list[str] = field(default_factory=list)


# --- where which fault goes ------------------------------------------------------------------------------------------------


def at_call(stage: Stage, point: Point) -> None:
    """This very call meets it."""
    stage.script.of_calls.append(Rule(point.fault, lambda call: call.number == point.number))


def at_line(stage: Stage, point: Point) -> None:
    """This very line meets it."""
    stage.script.of_lines.append(Rule(point.fault, lambda line: line.number == point.number))


def both_at_call(stage: Stage, point: Point) -> None:
    """Whoever makes this call, operator and autoscaler are killed together."""
    stage.both_die = True
    at_call(stage, point)


def at_gcs(stage: Stage, point: Point) -> None:
    """This very call of the GCS meets it."""
    stage.spoil_ray(point.number, point.fault)


def without_bookmarks(stage: Stage, point: Point) -> None:
    """From this line on no bookmark arrives any more."""
    seen = [False]

    def is_bookmark_after(line: Line) -> bool:
        seen[0] = seen[0] or line.number >= point.number
        return seen[0] and line.type == "BOOKMARK"

    stage.script.of_lines.append(Rule(point.fault, is_bookmark_after, times=None))


def from_call(stage: Stage, point: Point) -> None:
    """Every call from this one on, for a while."""

    def begin(call: Call) -> bool:
        if call.number == point.number:
            rule.until_s = stage.trouble_until = stage.loop.time() + WITHDRAWN_S
        return call.number >= point.number

    rule = Rule(point.fault, begin, times=None)
    stage.script.of_calls.append(rule)


def stale_relist(stage: Stage, point: Point) -> None:
    """The stream expires at this line, and the next list is one from the past."""
    stage.script.of_lines.append(Rule(Error(410), lambda line: line.number == point.number))
    plural = point.learned.split()[1]
    stage.script.of_calls.append(
        Rule(point.fault, lambda call: call.is_list and call.plural == plural and stage.script.met)
    )


def time_travel(stage: Stage, point: Point) -> None:
    """The operator is killed at this line; the next one's first lists are from the past (Sieve's stale state)."""

    def is_first_list(call: Call) -> bool:
        return call.is_list and bool(stage.script.met)

    def kill(line: Line) -> bool:
        if line.number != point.number:
            return False
        stage.loop.call_soon(stage.kill)
        return True

    stage.script.of_lines.append(Rule(Cut(), kill))
    for plural in ("pods", "services", "configmaps", *CUSTOM):
        stage.script.of_calls.append(
            Rule(point.fault, lambda call, plural=plural: is_first_list(call) and call.plural == plural)
        )


def evenly(found: Sequence[T], most: int) -> list[T]:
    """At most so many of them, spread evenly, the first and the last included."""
    if len(found) <= most:
        return list(found)
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]


def points_of(reference: Told, most: int | None = None) -> Iterator[Point]:
    """Every fault at every point; with `most`, at so many of each kind of place."""
    calls, lines = reference.calls, reference.lines
    writes = [call for call in calls if call.is_write and call.plural != "events"]
    reads = [call for call in calls if call.method == "GET" and call.plural in CUSTOM and call.name]
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
        yield Point("F5", Drop(is_silent=True), line.number, str(line), without_bookmarks)
    for lag in (Stale(lag_changes=1), Stale(lag_s=1.0), Stale(lag_s=30.0)):
        yield from (_at(call, "F6", lag) for call in evenly(reads, 5))
        yield from (Point("F6", lag, line.number, str(line), stale_relist) for line in evenly(lines, 3))
        yield from (
            Point("F6", lag, line.number, str(line), time_travel, is_past_believed=True) for line in evenly(lines, 3)
        )
    for call in (*reads, *writes):
        yield _at(call, "F7", Delay(5.0))
    for call in evenly(calls, 3):
        for fault in (FORBIDDEN, UNAUTHORIZED):
            yield Point("F14", fault, call.number, str(call), from_call, rests_s=ESR_S)
    if reference.asked:
        yield from _points_of_two(reference, writes)


def _points_of_two(reference: Told, writes: Sequence[Call]) -> Iterator[Point]:
    """Where an autoscaler lives beside the operator: both are killed at once, and the GCS has troubles of its own."""
    for call in evenly(writes, 5):
        yield from (Point("F1", fault, call.number, f"both at {call}", both_at_call) for fault in (Kill(), Kill(True)))
    for name, faults in GCS_FAULTS.items():
        numbers = [number for number, asked in enumerate(reference.asked) if asked == name]
        for number in evenly(numbers, 5):
            yield from (Point("F13", fault, number, name, at_gcs, lasts_s=lasts_s(fault)) for fault in faults)


def _at(call: Call, matrix: str, fault: CallFault) -> Point:
    return Point(matrix, fault, call.number, str(call), at_call, lasts_s=lasts_s(fault))


def _at_line(line: Line, matrix: str, fault: WatchFault) -> Point:
    return Point(matrix, fault, line.number, str(line), at_line, lasts_s=lasts_s(fault))


def lasts_s(fault: CallFault | WatchFault | GcsFault) -> float:
    """How long it goes on after it was met."""
    match fault:
        case Away(for_s) | Slow(for_s):
            return for_s
        case Reborn():
            return JOIN_S[1] + PLACE_S[1]
        case LoseRequest() | LoseAnswer():
            return PATIENCE_S
        case Delay(for_s) | Stall(for_s):
            return for_s
        case Overtake(longest_s):
            return longest_s
        case Hang():
            return SILENCE_S
    return 0.0


# --- telling -------------------------------------------------------------------------------------------------------------


def learn(scenario: Scenario) -> Told:
    """The reference: what happens without any fault."""

    async def tell(stage: Stage) -> Told:
        stage.on_begin = lambda: setattr(stage.script, "is_recording", True)
        await scenario.tell(stage)
        await stage.settle()
        await stage.pass_time(stage.learned_for_s)
        calls, lines, asked = list(stage.script.calls), list(stage.script.lines), list(stage.asked_of_ray())
        await stage.pass_time(20.0 - stage.learned_for_s)
        told = Told([], stage.portrait(), stage.counts(), calls, lines, asked)
        await look_again(stage)
        return told

    return _play(tell, scenario.stage)


def inject(scenario: Scenario, reference: Told, point: Point) -> Told:
    """The same life with one fault; `violations` says how it differs from what it ought to be."""

    async def tell(stage: Stage) -> Told:
        stage.judge.is_past_believed = point.is_past_believed
        stage.judge.is_view_trusted = point.matrix not in BLINDING
        stage.fault_lasts_s = point.lasts_s
        writes_before: list[int] = []

        def begin() -> None:
            point.apply(stage, point)
            writes_before.append(len(stage.judge.writes))

        stage.on_begin = begin
        await scenario.tell(stage)
        await stage.wait_for_faults()
        await stage.pass_time(point.rests_s)
        took_s = await until_like(stage, reference)
        told = Told([], stage.portrait(), stage.counts(), met=list(stage.script.met), took_s=took_s)
        if scenario.has_exact_counts and not point.is_past_believed and told.counts != reference.counts:
            stage.judge.note(f"other pods were made and ended: {told.counts}, not {reference.counts}")
        if scenario.is_quiet and not point.is_past_believed and (later := done(stage, writes_before[0])):
            stage.judge.note(f"writes although all is as wanted: {later[:5]}")
        if not stage.has_met_fault() and point.apply is not without_bookmarks:
            stage.judge.note("the fault was never met")
        await look_again(stage)
        return told

    return _play(tell, scenario.stage)


async def until_like(stage: Stage, reference: Told) -> float:
    """Wait until the world looks like the reference's end; says what differs when that takes too long."""
    took_s = await stage.settle()
    while not stage.judge.has_enough.is_set() and (difference := unlike(stage.portrait(), reference.portrait)):
        if took_s > stage.esr_s:
            stage.judge.note(f"the end differs {stage.esr_s:.0f} s after the last fault: {difference}")
            break
        await stage.pass_time(1.0)
        took_s += 1.0
    return took_s


def unlike(one: Any, other: Any, path: str = "") -> str:
    """The first place where two values differ, in words."""
    if one == other:
        return ""
    if isinstance(one, dict) and isinstance(other, dict):
        places = [unlike(one.get(key), other.get(key), f"{path}.{key}") for key in sorted({*one, *other})]
        return next((place for place in places if place), "")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        places = [unlike(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True))]
        return next((place for place in places if place), "")
    return f"{path}: {one!r}, in the reference {other!r}"


def done(stage: Stage, since: int) -> list[str]:
    """The writes that the API carried out; one that it rejected, because of a stale version for instance, is none."""
    return [write for write in stage.judge.writes[since:] if write.endswith(("-> 200", "-> 201"))]


async def look_again(stage: Stage) -> None:
    """A fresh operator must find nothing to do (RM:I19)."""
    stage.script.clear()
    await stage.pass_time(10.0)
    before = len(stage.judge.writes)
    stage.kill()
    await stage.pass_time(10.0)
    if later := done(stage, before):
        stage.judge.note(f"writes of a fresh operator although all is as wanted: {later[:5]}")


def _play(tell: Callable[[Stage], Any], kind: type[Stage]) -> Told:
    """In a loop of its own with virtual time."""

    async def play() -> Told:
        stage = kind(SEED, kubelets=KUBELETS)
        with heard_by(stage.judge):
            stage.open()
            told: Told = await tell(stage)
            await stage.close()
        told.violations, told.writes = stage.judge.violations, stage.judge.writes
        return told

    return virtual_time.run(play())

"""Which events are recorded, and which repetitions are dropped."""

import pytest

from raytide.api.actions import Create, EventSpec, Outcome, Result
from raytide.api.meta import PODS, Key
from raytide.controller.event_correlator import MAX_TOPICS, EventCorrelator
from support.builders import raycluster


class Ears:
    def __init__(self):
        self.recorded = []

    def record(self, _regarding, *, event_type, reason, note, action):
        assert action == "Validate"
        self.recorded.append((event_type, reason, note))

    def record_outcomes(self, _regarding, outcomes):
        self.recorded.extend((o.result, o.action.group, o.action.name) for o in outcomes)


class FakeClock:
    at = 0.0

    def monotonic(self):
        return self.at


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def ears():
    return Ears()


@pytest.fixture
def correlator(ears, clock):
    return EventCorrelator(ears, clock=clock)


def outcome(result, group="cpu", name="a"):
    return Outcome(Create(PODS, {"metadata": {"name": name}}, "Did", "FailedTo", group), result)


EVENT = EventSpec("InvalidRayClusterSpec", "spec.x is wrong")


@pytest.mark.rule("FD:RC-B18")
def test_an_event_with_an_unchanged_cause_is_recorded_once_for_days(correlator, ears, clock):
    for clock.at in range(0, 3 * 86_400, 1800):
        correlator.emit(raycluster(), (), [EVENT])
    assert ears.recorded == [("Warning", "InvalidRayClusterSpec", "spec.x is wrong")]


@pytest.mark.rule("FD:RC-B18")
def test_a_flapping_event_is_recorded_once(correlator, ears, clock):
    for clock.at in range(0, 86_400, 300):
        correlator.emit(raycluster(), (), [EVENT] if clock.at % 600 else [])
    assert len(ears.recorded) == 1


@pytest.mark.rule("FD:RC-B18")
@pytest.mark.parametrize(("gone_s", "times"), [(599, 1), (600, 2)])
def test_an_event_that_was_gone_for_ten_minutes_is_reported_again(correlator, ears, clock, gone_s, times):
    correlator.emit(raycluster(), (), [EVENT])
    clock.at = 5000.0
    correlator.emit(raycluster(), (), [])
    clock.at += gone_s
    correlator.emit(raycluster(), (), [EVENT])
    assert len(ears.recorded) == times


@pytest.mark.rule("FD:RC-B18")
def test_the_memory_per_object_is_bounded(correlator, ears, clock):
    for clock.at in range(500):
        events = [EventSpec("InvalidRayClusterSpec", f"spec.x[{clock.at}] is wrong"), EVENT]
        correlator.emit(raycluster(), [outcome(Result.REJECTED, f"group-{clock.at}")], events)
    (state,) = correlator._reported.values()
    assert len(state.events) == MAX_TOPICS
    assert len(state.rejections) <= MAX_TOPICS
    assert sum(recorded[0] == "Warning" for recorded in ears.recorded) == MAX_TOPICS


def test_of_another_object_with_the_same_name_everything_is_reported_again(correlator, ears):
    correlator.emit(raycluster(), (), [EVENT])
    other = raycluster()
    other["metadata"]["uid"] = "another"
    correlator.emit(other, (), [EVENT])
    assert len(ears.recorded) == 2


def test_a_new_generation_is_reported_again(correlator, ears):
    correlator.emit(raycluster(), (), [EVENT])
    edited = raycluster()
    edited["metadata"]["generation"] = 2
    correlator.emit(edited, (), [EVENT])
    assert len(ears.recorded) == 2


def test_other_clusters_have_events_of_their_own(correlator, ears):
    correlator.emit(raycluster(), (), [EVENT])
    correlator.emit(raycluster(name="other"), (), [EVENT])
    assert len(ears.recorded) == 2


@pytest.mark.rule("SC:S3")
def test_a_rejection_is_reported_once_a_minute_per_group(correlator, ears, clock):
    for clock.at in (0.0, 30.0):
        correlator.emit(raycluster(), [outcome(Result.REJECTED, "a"), outcome(Result.REJECTED, "b")], ())
    assert [group for _, group, _ in ears.recorded] == ["a", "b"]
    clock.at = 60.0
    correlator.emit(raycluster(), [outcome(Result.REJECTED, "a")], ())
    assert [group for _, group, _ in ears.recorded] == ["a", "b", "a"]


def test_all_rejections_of_one_pass_are_recorded(correlator, ears):
    correlator.emit(raycluster(), [outcome(Result.REJECTED, name=str(i)) for i in range(3)], ())
    assert len(ears.recorded) == 3, "the recorder counts them"


def test_every_write_is_reported_and_what_has_no_answer_is_not(correlator, ears):
    results = (Result.DONE, Result.UNKNOWN, Result.UNAVAILABLE, Result.SKIPPED, Result.DONE)
    correlator.emit(raycluster(), [outcome(result) for result in results], ())
    assert [result for result, _, _ in ears.recorded] == [Result.DONE, Result.DONE]


def test_forget_drops_the_recorded_events_of_a_cluster(correlator, ears):
    correlator.emit(raycluster(), (), [EVENT])
    correlator.forget(Key("default", "demo"))
    correlator.emit(raycluster(), (), [EVENT])
    assert len(ears.recorded) == 2


@pytest.mark.rule("FD:SEC-F12")
def test_of_ten_thousand_events_some_are_reported_and_the_others_counted(correlator, ears):
    correlator.emit(
        raycluster(), (), [EventSpec("InvalidRayClusterSpec", f"remark {number}") for number in range(10_000)]
    )
    assert len(ears.recorded) == 26
    assert ears.recorded[-1][-1] == "9975 more events like these are not recorded; resolve the recorded ones first"


@pytest.mark.rule("FD:SEC-F12")
def test_what_was_reported_of_an_earlier_generation_is_not_remembered(correlator, ears):
    key = Key("default", "demo")
    for generation in range(100):
        obj = raycluster()
        obj["metadata"]["generation"] = generation
        correlator.emit(obj, (), [EVENT])
    assert len(ears.recorded) == 100
    assert len(correlator._reported[key].events) == 1

"""Which events a user sees, and which would be echoes."""

import pytest

from raytide.api.actions import Create, Outcome, Remark, Result
from raytide.api.meta import PODS, Key
from raytide.kube.telling import MOST_TOPICS, Telling

from builders import raycluster


class Ears:
    def __init__(self):
        self.heard = []

    def record(self, _regarding, *, event_type, reason, note, action):
        assert action == "Validate"
        self.heard.append((event_type, reason, note))

    def record_outcomes(self, _regarding, outcomes):
        self.heard.extend((o.result, o.action.group, o.action.name) for o in outcomes)


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
def telling(ears, clock):
    return Telling(ears, clock=clock)


def outcome(result, group="cpu", name="a"):
    return Outcome(Create(PODS, {"metadata": {"name": name}}, "Did", "FailedTo", group), result)


REMARK = Remark("InvalidRayClusterSpec", "spec.x is wrong")


@pytest.mark.rule("FD:RC-B18")
def test_a_standing_remark_is_told_once_for_days(telling, ears, clock):
    for clock.at in range(0, 3 * 86_400, 1800):
        telling.tell(raycluster(), (), [REMARK])
    assert ears.heard == [("Warning", "InvalidRayClusterSpec", "spec.x is wrong")]


@pytest.mark.rule("FD:RC-B18")
def test_a_remark_that_comes_and_goes_is_told_once(telling, ears, clock):
    for clock.at in range(0, 86_400, 300):
        telling.tell(raycluster(), (), [REMARK] if clock.at % 600 else [])
    assert len(ears.heard) == 1


@pytest.mark.rule("FD:RC-B18")
@pytest.mark.parametrize(("gone_s", "times"), [(599, 1), (600, 2)])
def test_a_remark_that_was_gone_for_ten_minutes_is_news(telling, ears, clock, gone_s, times):
    telling.tell(raycluster(), (), [REMARK])
    clock.at = 5000.0
    telling.tell(raycluster(), (), [])
    clock.at += gone_s
    telling.tell(raycluster(), (), [REMARK])
    assert len(ears.heard) == times


@pytest.mark.rule("FD:RC-B18")
def test_an_object_with_ever_new_remarks_and_refusals_takes_bounded_memory(telling, ears, clock):
    for clock.at in range(500):
        remarks = [Remark("InvalidRayClusterSpec", f"spec.x[{clock.at}] is wrong"), REMARK]
        telling.tell(raycluster(), [outcome(Result.REFUSED, f"group-{clock.at}")], remarks)
    (told,) = telling._told.values()
    assert len(told.remarks) == MOST_TOPICS
    assert len(told.refusals) <= MOST_TOPICS
    assert sum(heard[0] == "Warning" for heard in ears.heard) == MOST_TOPICS


def test_of_another_object_with_the_same_name_everything_is_news(telling, ears):
    telling.tell(raycluster(), (), [REMARK])
    other = raycluster()
    other["metadata"]["uid"] = "another"
    telling.tell(other, (), [REMARK])
    assert len(ears.heard) == 2


def test_a_new_generation_is_told_again(telling, ears):
    telling.tell(raycluster(), (), [REMARK])
    edited = raycluster()
    edited["metadata"]["generation"] = 2
    telling.tell(edited, (), [REMARK])
    assert len(ears.heard) == 2


def test_other_clusters_have_remarks_of_their_own(telling, ears):
    telling.tell(raycluster(), (), [REMARK])
    telling.tell(raycluster(name="other"), (), [REMARK])
    assert len(ears.heard) == 2


@pytest.mark.rule("SC:S3")
def test_a_refusal_is_told_once_a_minute_per_group(telling, ears, clock):
    for clock.at in (0.0, 30.0):
        telling.tell(raycluster(), [outcome(Result.REFUSED, "a"), outcome(Result.REFUSED, "b")], ())
    assert [group for _, group, _ in ears.heard] == ["a", "b"]
    clock.at = 60.0
    telling.tell(raycluster(), [outcome(Result.REFUSED, "a")], ())
    assert [group for _, group, _ in ears.heard] == ["a", "b", "a"]


def test_all_refusals_of_one_pass_go_together(telling, ears):
    telling.tell(raycluster(), [outcome(Result.REFUSED, name=str(i)) for i in range(3)], ())
    assert len(ears.heard) == 3, "the recorder counts them"


def test_every_write_is_told_and_what_has_no_answer_is_not(telling, ears):
    results = (Result.DONE, Result.UNKNOWN, Result.UNAVAILABLE, Result.SKIPPED, Result.DONE)
    telling.tell(raycluster(), [outcome(result) for result in results], ())
    assert [result for result, _, _ in ears.heard] == [Result.DONE, Result.DONE]


def test_a_forgotten_cluster_leaves_nothing(telling, ears):
    telling.tell(raycluster(), (), [REMARK])
    telling.forget(Key("default", "demo"))
    telling.tell(raycluster(), (), [REMARK])
    assert len(ears.heard) == 2


@pytest.mark.rule("FD:SEC-F12")
def test_of_ten_thousand_remarks_some_are_told_and_the_others_counted(telling, ears):
    telling.tell(raycluster(), (), [Remark("InvalidRayClusterSpec", f"remark {number}") for number in range(10_000)])
    assert len(ears.heard) == 26
    assert ears.heard[-1][-1] == "9975 more remarks like these are not told; act on the others first"


@pytest.mark.rule("FD:SEC-F12")
def test_what_was_said_of_an_earlier_generation_is_not_remembered(telling, ears):
    key = Key("default", "demo")
    for generation in range(100):
        obj = raycluster()
        obj["metadata"]["generation"] = generation
        telling.tell(obj, (), [REMARK])
    assert len(ears.heard) == 100
    assert len(telling._told[key].remarks) == 1

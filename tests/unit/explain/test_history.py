"""History of lanes: steps, window, bounded memory, and clocks that jump."""

import gc
import sys
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from raytide.explain.history import (
    MAX_BYTES,
    MAX_GROUPS,
    MAX_REASONS,
    MAX_WORKLOADS,
    OTHER,
    WINDOW_S,
    History,
    Key,
    Step,
    key_of,
)
from raytide.explain.model import Verdict
from raytide.explain.overview import GroupSize, Lane

pytestmark = pytest.mark.rule("SC:S21")

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
START = int(NOON.timestamp())


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def lane(wanted: int = 2, ready: int = 1, reason: str = "", name: str = "demo") -> Lane:
    return Lane("RayCluster", "default", name, wanted, ready, Verdict.WAITS, reason)


DEMO = key_of(lane())


def recorded(history: History, *steps: tuple[float, int, int, str], name: str = "demo") -> History:
    for at, wanted, ready, reason in steps:
        history.record(lane(wanted, ready, reason, name), after(at))
    return history


def since_noon(steps: list[Step]) -> list[tuple[int, int, int, str]]:
    return [(at - START, wanted, ready, reason) for at, wanted, ready, reason in steps]


def test_each_change_is_a_step():
    history = recorded(History(), (0, 4, 0, "WaitingForPods"), (5, 4, 2, "WaitingForPods"), (9, 4, 4, ""))
    assert since_noon(history.steps(DEMO, after(10))) == [
        (0, 4, 0, "WaitingForPods"),
        (5, 4, 2, "WaitingForPods"),
        (9, 4, 4, ""),
    ]


def test_what_does_not_change_is_no_step():
    history = recorded(History(), (0, 2, 1, "A"), (5, 2, 1, "A"), (9, 2, 1, "A"), (12, 2, 2, ""))
    assert since_noon(history.steps(DEMO, after(20))) == [(0, 2, 1, "A"), (12, 2, 2, "")]


def test_within_a_second_the_last_numbers_count():
    history = recorded(History(), (0, 2, 0, ""), (3.1, 2, 1, ""), (3.8, 2, 2, ""))
    assert since_noon(history.steps(DEMO, after(9))) == [(0, 2, 0, ""), (3, 2, 2, "")]


def test_a_change_that_is_undone_within_a_second_leaves_no_step():
    history = recorded(History(), (0, 2, 2, ""), (3, 3, 2, "A"), (3, 2, 2, ""), (8, 3, 2, "A"))
    assert since_noon(history.steps(DEMO, after(9))) == [(0, 2, 2, ""), (8, 3, 2, "A")]


def test_the_first_step_of_a_window_begins_with_it():
    history = recorded(History(), (0, 1, 1, ""), (100, 2, 1, "A"), (500, 2, 2, ""))
    assert since_noon(history.steps(DEMO, after(600), window_s=300)) == [(300, 2, 1, "A"), (500, 2, 2, "")]


def test_a_coarser_resolution_merges_steps():
    steps = [(at, 9, at, "") for at in range(10)]
    history = recorded(History(), *steps)
    assert since_noon(history.steps(DEMO, after(10), resolution_s=5)) == [(0, 9, 4, ""), (5, 9, 9, "")]


def test_a_workload_that_is_not_known_has_no_steps():
    assert History().steps(Key("RayCluster", "default", "other"), NOON) == []


def test_a_deleted_workload_is_forgotten():
    history = recorded(History(), (0, 1, 1, ""), (5, 2, 2, ""))
    history.remove(DEMO)
    history.remove(DEMO)
    assert (history.steps(DEMO, after(9)), len(history), history.size_bytes) == ([], 0, 0)


def test_nothing_older_than_the_window_is_kept():
    history = recorded(History(), *((at, 9, at // 60 % 9, "") for at in range(0, 3 * WINDOW_S, 60)))
    steps = history.steps(DEMO, after(3 * WINDOW_S))
    assert steps[0].at == START + 2 * WINDOW_S
    assert history.size_bytes < (WINDOW_S + 600) // 60 * 5


# --- groups ------------------------------------------------------------------------------------------------------------------


def grouped(*groups: GroupSize, name: str = "demo", size: int = 1) -> Lane:
    return replace(lane(2 * size, size, name=name), groups=groups)


def test_each_group_has_its_own_steps():
    history = History()
    history.record(grouped(GroupSize("cpu", 2, 0, "A"), GroupSize("gpu", 1, 1)), NOON)
    history.record(grouped(GroupSize("cpu", 2, 2), GroupSize("gpu", 1, 1)), after(9))
    assert since_noon(history.steps(DEMO, after(10), group="cpu")) == [(0, 2, 0, "A"), (9, 2, 2, "")]
    assert since_noon(history.steps(DEMO, after(10), group="gpu")) == [(0, 1, 1, "")]
    assert since_noon(history.steps(DEMO, after(10), group="gpu", window_s=4)) == [(6, 1, 1, "")]
    assert history.steps(DEMO, after(10), group="other") == []


def test_a_group_whose_number_is_not_known_keeps_the_last_one():
    history = History()
    for at, ready in ((0, 1), (5, None), (9, 2)):
        history.record(grouped(GroupSize("cpu", 2, ready), GroupSize("gpu", 1, None)), after(at))
    assert since_noon(history.steps(DEMO, after(10), group="cpu")) == [(0, 2, 1, ""), (9, 2, 2, "")]
    assert history.steps(DEMO, after(10), group="gpu") == []


def test_groups_that_are_gone_and_those_of_a_deleted_workload_are_forgotten():
    history = History(max_groups=2)
    cpu, gpu, tpu = (GroupSize(name, 2, 0) for name in ("cpu", "gpu", "tpu"))
    for at in range(4):
        history.record(grouped(cpu._replace(ready=at), gpu), after(at))
    history.record(grouped(gpu, tpu), after(5))
    assert history.steps(DEMO, after(6), group="cpu") == []
    assert len(history.steps(DEMO, after(6), group="tpu")) == 1
    history.remove(DEMO)
    assert (history.steps(DEMO, after(6), group="gpu"), history.size_bytes, history._group_count) == ([], 0, 0)


def test_groups_beyond_the_maximum_have_no_history():
    history = History(max_groups=3)
    for number in range(2):
        history.record(grouped(GroupSize("cpu", 1, 1), GroupSize("gpu", 1, 1), name=f"n{number}"), NOON)
    known = [(name, group) for name in ("n0", "n1") for group in ("cpu", "gpu")]
    assert [len(history.steps(key_of(lane(name=name)), NOON, group=group)) for name, group in known] == [1, 1, 1, 0]
    assert len(history.steps(key_of(lane(name="n1")), NOON)) == 1


# --- clocks that jump ------------------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_moves_the_earlier_steps_back():
    history = recorded(History(), (0, 1, 0, ""), (60, 1, 1, ""))
    recorded(history, (60 - 3600, 2, 1, "A"), (90 - 3600, 2, 2, ""))
    assert since_noon(history.steps(DEMO, after(100 - 3600))) == [
        (-3600, 1, 0, ""),
        (60 - 3600, 2, 1, "A"),
        (90 - 3600, 2, 2, ""),
    ]


def test_a_clock_that_is_set_forward_drops_what_is_older_than_the_window():
    history = recorded(History(), (0, 1, 0, ""), (60, 1, 1, ""), (10 * WINDOW_S, 2, 1, "A"))
    now = 10 * WINDOW_S + 5
    assert since_noon(history.steps(DEMO, after(now))) == [(now - WINDOW_S, 1, 1, ""), (10 * WINDOW_S, 2, 1, "A")]


# --- bounds ----------------------------------------------------------------------------------------------------------------


def test_the_busiest_workload_gives_up_resolution_first():
    history = recorded(History(max_bytes=2000), (0, 1, 0, ""), (7, 1, 1, ""), name="quiet")
    recorded(history, *((at, 20, at * at % 13, "") for at in range(10, 5000)))
    assert history.size_bytes <= 2000
    quiet = key_of(lane(name="quiet"))
    assert since_noon(history.steps(quiet, after(5000))) == [(0, 1, 0, ""), (7, 1, 1, "")]
    busy = since_noon(history.steps(DEMO, after(5000)))
    assert 200 < len(busy) < 700
    assert busy[0][0] == 10
    assert busy[-1][0] > 4900


def test_workloads_beyond_the_maximum_have_no_history():
    history = History(max_workloads=3)
    for number in range(5):
        history.record(lane(name=f"n{number}"), NOON)
    assert len(history) == 3
    assert history.steps(key_of(lane(name="n4")), NOON) == []
    history.remove(key_of(lane(name="n0")))
    history.record(lane(name="n4"), NOON)
    assert len(history.steps(key_of(lane(name="n4")), NOON)) == 1


def test_reasons_are_bounded_in_number_and_length():
    history = History()
    for number in range(2 * MAX_REASONS):
        history.record(lane(reason=f"{number:05d}{'x' * 500}"), after(number))
    steps = history.steps(DEMO, after(2 * MAX_REASONS))
    assert max(len(step.reason) for step in steps) == 64
    assert steps[-1].reason == OTHER


def memory_of(history: History) -> int:
    """Bytes of all objects of a history, also of the names of its workloads and groups; tracemalloc would triple the time."""
    found: dict[int, object] = {}
    left: list[object] = [history]
    while left:
        one = left.pop()
        if id(one) not in found and not isinstance(one, type):
            found[id(one)] = one
            left += gc.get_referents(one)
    return sum(sys.getsizeof(one) for one in found.values())


@pytest.mark.slow
@pytest.mark.rule("PF:PAGE")
def test_workloads_that_change_every_three_seconds_for_six_hours_stay_within_the_bound():
    """A fiftieth of 1,000 workloads and of the memory: with the objects of 20 workloads."""
    history = History(max_bytes=MAX_BYTES // 50)
    lanes = [[lane(9, ready, "A", f"n{name}") for ready in range(3)] for name in range(20)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for turn in range(WINDOW_S // 3):
        now = after(turn * 3)
        for name, ones in enumerate(lanes):
            history.record(ones[(turn * turn + name) % 3], now)
    gc.collect()  # also the tuples that the interpreter keeps for reuse, 140 KiB
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert history.size_bytes <= MAX_BYTES // 50
    assert used <= 16 * 1024 * 1024 // 50
    assert memory_of(history) == pytest.approx(used, rel=0.1)


@pytest.mark.slow
@pytest.mark.rule("PF:PAGE")
@pytest.mark.parametrize(
    ("workloads", "groups", "turns", "limit"),
    [(1000, 7, 76, 16 * 1024 * 1024), (MAX_WORKLOADS, 1, 4, 10 * 1024 * 1024)],
    ids=["a thousand that fill it", "as many as have a history"],
)
def test_a_full_history_stays_within_its_bound(workloads, groups, turns, limit):
    """With groups, of which MAX_GROUPS have a history. A step of 64-bit numbers takes 20 bytes; two in a row can be merged."""
    history = History()

    def sized(name: int, size: int) -> Lane:
        return grouped(*(GroupSize(f"group-{each}", size, size) for each in range(groups)), name=f"n{name}", size=size)

    lanes = [(sized(name, 0), sized(name, 2**62)) for name in range(workloads)]
    for turn in range(turns):
        now = after(turn // 2 * (2 * WINDOW_S // turns) // 2 * 2 + turn % 2)
        for ones in lanes:
            history.record(ones[turn % 2], now)
    used = memory_of(history)
    assert len(history) == workloads
    assert history.size_bytes <= MAX_BYTES
    assert history.size_bytes > 0.99 * MAX_BYTES or workloads == MAX_WORKLOADS
    assert used <= history.size_bytes * 9 / 8 + 700 * (workloads + MAX_GROUPS)
    assert used <= limit


# --- any history -----------------------------------------------------------------------------------------------------------

changes = st.lists(
    st.tuples(
        st.integers(-500, 4000), st.integers(0, 3), st.integers(0, 300), st.integers(0, 300), st.sampled_from("AB")
    ),
    max_size=60,
)


@given(changes, st.integers(1, 400))
def test_of_any_history_the_last_numbers_are_right_and_times_grow(drawn, max_bytes):
    """Also where the clock jumps back, and where there is room for a few steps only."""
    history = History(max_bytes=max_bytes)
    at, last = 0, {}
    for delta, name, wanted, ready, reason in drawn:
        at += delta
        one = lane(wanted, ready, reason, f"n{name}")
        history.record(one, after(at))
        last[key_of(one)] = one
    for key, one in last.items():
        steps = history.steps(key, after(at))
        assert steps[-1][1:] == (one.wanted, one.ready, one.reason)
        times = [step.at for step in steps]
        assert times == sorted(set(times))
        assert START + at - WINDOW_S <= times[0]
        assert times[-1] <= START + at


@given(changes)
def test_of_any_history_with_enough_memory_no_step_is_lost(drawn):
    """A clock that only advances, in whole seconds: what is recorded is what is returned."""
    history, at, expected = History(), 0, []
    for delta, _, wanted, ready, reason in drawn:
        at += 1 + abs(delta) % 200
        history.record(lane(wanted, ready, reason), after(at))
        if not expected or expected[-1][1:] != (wanted, ready, reason):
            expected.append((at, wanted, ready, reason))
    assert since_noon(history.steps(DEMO, after(at))) == expected

"""The patches of jobs: sizes, notes and messages, and no write of what is stored already."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.config import SharingConfig
from raytide.api.sharing_record import (
    ABOVE_MAXIMUM,
    ADMITTED,
    GROWING,
    REACHING_MINIMUM,
    RECLAIMED,
    REQUESTED,
    ResizeNote,
    SharingRecord,
    WaitingNote,
    encode_record,
    parse_record,
)
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare.algorithm.model import CAPACITY_UNKNOWN, FRAGMENTED, Allocation, Resize, Waiting
from raytide.fairshare.participants import id_of
from raytide.fairshare.patch_plan import GROWTH_HELD_S, plan_patches
from raytide.fairshare.snapshot import SnapshotBuilder
from raytide.fairshare.unknown_capacity import clamp_to_bounds
from unit.fairshare.test_participants import UID, job, made, pod_of

NOW = datetime(2026, 1, 1, 12, 0, 0, 700_000, tzinfo=UTC)
SECOND = NOW.replace(microsecond=0)
KNOWN = SharingRecord(UID, 4, is_admitted=True, admitted_at=SECOND - timedelta(hours=1), at=SECOND - timedelta(hours=1))


def given(jobs, *resizes, waiting=(), pods=()):
    jobs = [jobs] if isinstance(jobs, TrainingJob) else jobs
    pools = SnapshotBuilder(SharingConfig())
    pool = pools.build(jobs, pods, (), now=NOW)
    return plan_patches(jobs, pool, Allocation(resizes, tuple(waiting)), NOW, trainers=pools.trainers)


def resize(before, after, reason=GROWING, *, of="j", **more):
    return Resize(id_of(job(of).key), before, after, reason, f"{before}→{after}", **more)


def waits(reason, message="words", *, below=True):
    return Waiting(id_of(job().key), reason, message, is_below_floor=below)


def only(*args, **more):
    (order,) = given(*args, **more).patches
    return order


def written(order):
    body = order.patch("7")
    record = parse_record(body["metadata"]["annotations"][constants.SHARING_ANNOTATION])
    return body.get("spec", {}).get("trainer", {}).get("replicas"), record


# --- sizes ---------------------------------------------------------------------------------------------------------------


def test_a_new_job_gets_a_record_of_its_minimum():
    replicas, record = written(only(job()))
    assert replicas == 2
    assert record == SharingRecord(UID, 2, is_admitted=True, admitted_at=SECOND, at=SECOND)


def test_a_waiting_gang_gets_a_reason_and_its_spec_stays_unchanged():
    replicas, record = written(only(job(gpu=1), waiting=[waits(FRAGMENTED)]))
    assert replicas is None
    assert record == SharingRecord(UID, 0, waiting=WaitingNote(FRAGMENTED, "words"), at=SECOND)


def test_a_gang_is_admitted():
    replicas, record = written(only(job(gpu=1, record=SharingRecord(UID, 0)), resize(0, 2, ADMITTED)))
    assert replicas == 2
    assert (record.is_admitted, record.admitted_at, record.replicas) == (True, SECOND, 2)
    assert record.resizes == (ResizeNote(SECOND, 0, 2, ADMITTED, "0→2"),), "and no user requested a size"


def test_a_resize_is_one_patch_with_its_reason():
    order = only(job(record=KNOWN, replicas=4), resize(4, 3, RECLAIMED, for_id=id_of(job("other").key)))
    body = order.patch("7")
    assert body["spec"] == {"trainer": {"replicas": 3}}
    assert body["metadata"]["resourceVersion"] == "7"
    _, record = written(order)
    assert record == replace(
        KNOWN, replicas=3, at=SECOND, resizes=(ResizeNote(SECOND, 4, 3, RECLAIMED, "4→3", "ns/other"),)
    )


@pytest.mark.rule("TJ:4")
def test_growth_that_is_not_released_is_not_written():
    waiting = resize(4, 6, is_released=False)
    order = only(job(record=KNOWN, replicas=4), waiting)
    replicas, record = written(order)
    assert (replicas, record.replicas, record.resizes) == (None, 4, ())
    assert (record.waiting.reason, record.waiting.is_below_minimum) == (constants.AWAITING_CAPACITY, False)


@pytest.mark.rule("TJ:4")
def test_what_is_released_is_written_up_to_the_first_that_is_not():
    steps = resize(4, 5, REACHING_MINIMUM), resize(5, 6, is_released=False), resize(6, 6)
    replicas, record = written(only(job(record=KNOWN, replicas=4), *steps))
    assert (replicas, record.replicas) == (5, 5)
    assert [note.after for note in record.resizes] == [5]


def promised(seconds_ago):
    """The record of a job that has waited for so long for the rest of its growth."""
    since = SECOND - timedelta(seconds=seconds_ago)
    return replace(KNOWN, waiting=WaitingNote(constants.AWAITING_CAPACITY, "", promised_since=since))


IN_PARTS = resize(4, 5), resize(5, 9, is_released=False)


@pytest.mark.rule("FD:SH-B11", "FD:TJ3-9")
@pytest.mark.parametrize(
    ("record", "steps", "size", "changes_in_s"),
    [
        pytest.param(KNOWN, IN_PARTS, None, GROWTH_HELD_S, id="it waits for the rest"),
        pytest.param(None, IN_PARTS, None, GROWTH_HELD_S, id="also without a record"),
        pytest.param(promised(GROWTH_HELD_S - 1), IN_PARTS, None, 1, id="for a while"),
        pytest.param(promised(GROWTH_HELD_S), IN_PARTS, 5, None, id="and not longer"),
        pytest.param(promised(-600), IN_PARTS, None, GROWTH_HELD_S, id="by a clock that was set back, once more"),
        pytest.param(promised(1), [resize(4, 9)], 9, None, id="the rest is released"),
        pytest.param(promised(1), [resize(4, 9, is_released=False)], None, None, id="nothing is released"),
        pytest.param(
            KNOWN, [resize(4, 5, REACHING_MINIMUM), resize(5, 9, is_released=False)], 5, None, id="reaches its minimum"
        ),
        pytest.param(
            KNOWN,
            [resize(4, 3, RECLAIMED), resize(3, 4), resize(4, 9, is_released=False)],
            3,
            GROWTH_HELD_S,
            id="what it gives is not held back",
        ),
    ],
)
def test_a_part_of_growth_waits_for_the_rest(record, steps, size, changes_in_s):
    found = given(job(record=record, replicas=4), *steps)
    replicas, _ = written(found.patches[0])
    assert replicas == size
    assert found.changes_at == (None if changes_in_s is None else SECOND + timedelta(seconds=changes_in_s))


@pytest.mark.rule("FD:TJ3-9")
def test_the_wait_begins_once_and_again_after_a_part():
    (held,) = given(job(record=KNOWN, replicas=4), *IN_PARTS).patches
    assert held.record.waiting.promised_since == SECOND
    later = replace(held.record, at=SECOND - timedelta(seconds=5), waiting=promised(5).waiting)
    (held,) = given(job(record=later, replicas=4), *IN_PARTS).patches
    assert held.record.waiting.promised_since == SECOND - timedelta(seconds=5)
    (part,) = given(job(record=promised(GROWTH_HELD_S), replicas=4), *IN_PARTS).patches
    assert (part.replicas, part.record.waiting.promised_since) == (5, SECOND)


def test_an_announced_admission_is_recorded_before_other_reasons():
    promised = resize(0, 2, ADMITTED, is_released=False)
    _, record = written(only(job(gpu=1), promised, waiting=[waits(FRAGMENTED, below=False)]))
    assert record.waiting == WaitingNote(
        constants.AWAITING_CAPACITY,
        "0→2; waits until terminating pods are gone",
        is_below_minimum=True,
        promised_since=SECOND,
    )


def test_sizes_count_trainers_that_failed_for_good():
    given_up = job(record=KNOWN, replicas=4, status={"trainer": {"failedIndexes": "1"}})
    replicas, record = written(only(given_up, resize(3, 5)))
    assert (replicas, record.replicas, record.resizes[0].before, record.resizes[0].after) == (6, 6, 4, 6)


@pytest.mark.rule("TJ:3.4")
def test_pservers_follow():
    pserver = {"min-instance": 1, "max-instance": 9, "scaling": {"mode": "Ratio", "trainersPerPserver": 2}}
    _, record = written(only(job(pserver=pserver, record=KNOWN, replicas=4), resize(4, 5)))
    assert record.pservers == 3


def test_patches_are_ordered_shrinks_then_growth_then_messages():
    jobs = [job(name, record=KNOWN, replicas=4) for name in ("a", "b", "c", "d", "e")]
    steps = [resize(4, 5, of="d"), resize(4, 3, of="b", reason=RECLAIMED), resize(4, 5, of="a")]
    found = given(jobs, *steps, waiting=[replace(waits(FRAGMENTED), id=id_of(job("c").key))]).patches
    assert [order.job.metadata.name for order in found] == ["b", "d", "a", "c"], "and e has no new message"


# --- requests --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.21")
@pytest.mark.parametrize(
    ("replicas", "steps", "expected", "notes"),
    [
        pytest.param(3, [], None, [(4, 3, REQUESTED)], id="a size within the bounds stays"),
        pytest.param(9, [resize(4, 6)], 6, [(4, 6, REQUESTED)], id="of a larger one what is granted is noted"),
        pytest.param(6, [resize(4, 6)], None, [(4, 6, REQUESTED)], id="if all of it is granted it stays in the spec"),
        pytest.param(9, [], 4, [], id="if nothing is granted the present size replaces it"),
        pytest.param(
            1,
            [resize(1, 2, REACHING_MINIMUM)],
            2,
            [(4, 1, REQUESTED), (1, 2, REACHING_MINIMUM)],
            id="and so is one below",
        ),
        pytest.param(None, [], 4, [], id="none orders nothing: what was ordered last is written again"),
    ],
)
def test_sizes_that_another_client_wrote(replicas, steps, expected, notes):
    pods = [pod_of(index, "n1") for index in range(4)]
    wrote, record = written(only(job(record=KNOWN, replicas=replicas), *steps, pods=pods))
    assert wrote == expected
    assert [(note.before, note.after, note.reason) for note in record.resizes] == notes


@pytest.mark.rule("FD:TJ3-2")
def test_a_request_that_terminating_pods_hold_up_stays_in_the_spec():
    pods = [pod_of(index, "n1") for index in range(4)]
    wrote, record = written(only(job(record=KNOWN, replicas=6), resize(4, 6, is_released=False), pods=pods))
    assert (wrote, record.replicas, record.request) == (None, 4, None)
    assert record.waiting.reason == constants.AWAITING_CAPACITY


def test_a_request_is_noted_once():
    noted = replace(KNOWN, replicas=3)
    assert given(job(record=noted, replicas=3)).patches == ()


def test_only_the_last_ten_are_kept():
    notes = tuple(ResizeNote(SECOND, i, i + 1, GROWING) for i in range(10))
    _, record = written(only(job(record=replace(KNOWN, resizes=notes), replicas=4), resize(4, 5)))
    assert [note.before for note in record.resizes] == [*range(1, 10), 4]


# --- words -----------------------------------------------------------------------------------------------------------------


def waiting_record(age_s, message="words", reason=FRAGMENTED):
    at = SECOND - timedelta(seconds=age_s)
    return replace(KNOWN, waiting=WaitingNote(reason, message, is_below_minimum=False), at=at)


@pytest.mark.parametrize(
    ("record", "is_written", "is_later"),
    [
        pytest.param(waiting_record(5), False, False, id="the same message is not written again"),
        pytest.param(waiting_record(5, "older words"), False, True, id="a newer message waits"),
        pytest.param(waiting_record(30, "older words"), True, False, id="until the older one is 30 s old"),
        pytest.param(waiting_record(5, reason=CAPACITY_UNKNOWN), True, False, id="another reason does not wait"),
        pytest.param(replace(KNOWN, at=SECOND), True, False, id="nor does a first one"),
    ],
)
def test_messages_are_written_at_most_every_thirty_seconds(record, is_written, is_later):
    found = given(job(record=record, replicas=4), waiting=[waits(FRAGMENTED, below=False)])
    assert (bool(found.patches), found.has_stale_message) == (is_written, is_later)


def test_the_message_is_removed_when_the_job_no_longer_waits():
    _, record = written(only(job(record=waiting_record(5), replicas=4)))
    assert record.waiting is None


def test_a_gang_that_timed_out_gets_the_time_of_its_next_admission():
    gave_back = {
        "type": "Admitted",
        "status": "False",
        "reason": constants.GANG_TIMEOUT,
        "lastTransitionTime": "2026-01-01T11:59:30Z",
    }
    status = {"conditions": [gave_back], "admission": {"timeouts": 1}}
    replicas, record = written(only(job(gpu=1, record=replace(KNOWN, replicas=2), replicas=2, status=status)))
    assert replicas is None
    assert not record.is_admitted
    assert record.waiting == WaitingNote(
        constants.GANG_TIMEOUT,
        "the minimum did not start in time; the job may be admitted again at 2026-01-01T12:00:30Z",
    )


RESERVED = "words; free capacity is reserved for it until 2026-01-01T12:10:00Z"


@pytest.mark.rule("FD:SH-B9")
@pytest.mark.parametrize(
    ("since_s", "is_reserving", "note"),
    [
        pytest.param(None, True, WaitingNote(FRAGMENTED, RESERVED, reserved_since=SECOND), id="it begins"),
        pytest.param(
            599, True, WaitingNote(FRAGMENTED, RESERVED.replace("12:10:00", "12:00:01")), id="it ends after ten minutes"
        ),
        pytest.param(700, False, WaitingNote(FRAGMENTED, "words"), id="its beginning is kept when it has lapsed"),
        pytest.param(
            5400, True, WaitingNote(FRAGMENTED, RESERVED), id="after eighty more minutes there is another one"
        ),
        pytest.param(
            -3600, True, WaitingNote(FRAGMENTED, RESERVED, reserved_since=SECOND), id="the clock was set back"
        ),
        pytest.param(None, False, WaitingNote(FRAGMENTED, "words"), id="it is not the first in line"),
    ],
)
def test_a_reservation_is_recorded_with_its_start(since_s, is_reserving, note):
    since = None if since_s is None else SECOND - timedelta(seconds=since_s)
    old = SharingRecord(UID, 0, waiting=WaitingNote("earlier", "", reserved_since=since), at=SECOND)
    waiting = replace(waits(FRAGMENTED), reserved_nodes=("node-1",) if is_reserving else ())
    _, record = written(only(job(gpu=1, record=old), waiting=[waiting]))
    assert record.waiting == replace(
        note, reserved_since=note.reserved_since or since, reserved_nodes=waiting.reserved_nodes
    )


@pytest.mark.rule("FD:SH-B9")
def test_a_job_that_has_its_minimum_reserves_nothing():
    old = SharingRecord(UID, 2, is_admitted=True, waiting=WaitingNote(FRAGMENTED, "", reserved_since=SECOND))
    _, record = written(only(job(gpu=1, record=old, replicas=2), waiting=[waits(FRAGMENTED, below=False)]))
    assert record.waiting == WaitingNote(FRAGMENTED, "words", is_below_minimum=False)


@pytest.mark.parametrize("more", [{"suspend": True}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}])
def test_jobs_that_are_no_participants_are_not_patched(more):
    assert given(job(record=KNOWN, **more)).patches == ()


# --- victims ---------------------------------------------------------------------------------------------------------------

OF_FOUR = [pod_of(0, "n1"), pod_of(1, "n2"), pod_of(2, "n1"), pod_of(3, "n2")]


@pytest.mark.rule("FD:SH-B3")
@pytest.mark.parametrize(
    ("pods", "after", "nodes", "victims"),
    [
        pytest.param(OF_FOUR, 3, {"n1": -1}, [2], id="on the planned node, although the highest index is elsewhere"),
        pytest.param(OF_FOUR, 2, {"n2": -2}, [3, 1], id="all of a node"),
        pytest.param(OF_FOUR, 2, {"n1": -2}, [2, 3], id="trainer 0 stays, and the highest index is removed instead"),
        pytest.param(OF_FOUR, 2, {}, [3, 2], id="where no node is planned the highest index"),
        pytest.param([*OF_FOUR[:3], pod_of(3)], 2, {"n1": -1}, [2, 3], id="the others: without a node first"),
        pytest.param(
            [*OF_FOUR[:1], pod_of(1, "n2", phase="Pending"), *OF_FOUR[2:]], 3, {"n2": -1}, [1], id="what does not run"
        ),
        pytest.param(OF_FOUR[:3], 3, {}, [], id="only one that has no pod yet"),
        pytest.param(OF_FOUR, 0, {"n1": -2, "n2": -2}, [3, 2, 1, 0], id="all"),
    ],
)
def test_a_scale_down_names_its_victims(pods, after, nodes, victims):
    order = only(job(floor=0, record=KNOWN, replicas=4), resize(4, after, RECLAIMED, nodes=nodes), pods=pods)
    _, record = written(order)
    assert list(record.victims) == [f"j-trainer-{i}" for i in victims]


@pytest.mark.rule("FD:SH-B3")
def test_victims_of_an_unfinished_scale_down_are_named_again():
    """Otherwise the job's controller would keep them and remove others in their place."""
    before = replace(KNOWN, replicas=3, victims=("j-trainer-1",))
    one = job(floor=1, record=before, replicas=3)
    _, record = written(only(one, resize(3, 2, RECLAIMED, nodes={"n1": -1}), pods=OF_FOUR))
    assert record.victims == ("j-trainer-1", "j-trainer-2")
    ending = msgspec.structs.replace(OF_FOUR[1], is_terminating=True)
    pods = [OF_FOUR[0], ending, *OF_FOUR[2:]]
    _, record = written(only(one, resize(3, 2, RECLAIMED, nodes={"n1": -1}), pods=pods))
    assert record.victims == ("j-trainer-2",), "one that is terminating needs no name"


@pytest.mark.rule("FD:SH-B3")
def test_messages_leave_the_victims_alone():
    named = replace(KNOWN, victims=("j-trainer-9",))
    _, record = written(only(job(record=named, replicas=4), waiting=[waits(FRAGMENTED, below=False)], pods=OF_FOUR))
    assert record.victims == named.victims
    assert (
        given(job(record=replace(record, victims=()), replicas=4), waiting=[waits(FRAGMENTED, below=False)]).patches
        == ()
    )


@pytest.mark.rule("FD:SH-B3")
def test_growth_and_other_clients_clear_the_victims():
    named = replace(KNOWN, victims=("j-trainer-9",))
    _, record = written(only(job(record=named, replicas=4), resize(4, 5), pods=OF_FOUR))
    assert record.victims == ()
    _, record = written(only(job(record=named, replicas=3), pods=OF_FOUR))
    assert (record.replicas, record.victims) == (3, ())


def test_growth_has_the_planned_nodes_until_the_next_resize():
    steps = resize(4, 5, nodes={"n2": 1}), resize(5, 7, nodes={"n1": 1, "n2": 1}), resize(7, 8, is_released=False)
    _, record = written(only(job(ceiling=9, record=promised(GROWTH_HELD_S), replicas=4), *steps, pods=OF_FOUR))
    assert record.placements == {"n1": 1, "n2": 2}
    grown = replace(KNOWN, placements={"n1": 1})
    _, record = written(only(job(record=grown, replicas=4), waiting=[waits(FRAGMENTED, below=False)], pods=OF_FOUR))
    assert record.placements == {"n1": 1}
    _, record = written(only(job(record=grown, replicas=4), resize(4, 3, nodes={"n2": -1}), pods=OF_FOUR))
    assert record.placements == {}
    _, record = written(only(job(record=grown, replicas=3), pods=OF_FOUR))
    assert record.placements == {}, "another client wrote a size"


def test_an_admission_has_the_planned_nodes_of_master_and_parameter_servers_until_the_next_resize():
    core_nodes = {"master": {"n1": 1}, "pserver": {"n2": 2}}
    admitted = resize(0, 4, ADMITTED, nodes={"n3": 4}, core_nodes=core_nodes)
    _, record = written(only(job(is_gang=True), admitted))
    assert record.core_nodes == core_nodes
    known = replace(KNOWN, core_nodes=core_nodes)
    _, record = written(only(job(record=known, replicas=4), waiting=[waits(FRAGMENTED, below=False)], pods=OF_FOUR))
    assert record.core_nodes == core_nodes
    _, record = written(only(job(record=known, replicas=4), resize(4, 3, nodes={"n1": -1}), pods=OF_FOUR))
    assert record.core_nodes == {}


@pytest.mark.rule("FD:SH-B3")
def test_trainers_that_failed_for_good_are_no_victims():
    lost = job(record=KNOWN, replicas=4, status={"trainer": {"failedIndexes": "1"}})
    pods = [OF_FOUR[0], *OF_FOUR[2:]]
    replicas, record = written(only(lost, resize(3, 2, RECLAIMED, nodes={"n1": -1}), pods=pods))
    assert (replicas, record.victims) == (2, ("j-trainer-2",)), "with 3 the job's controller would keep all three"


@pytest.mark.rule("TJ:3.12")
def test_growth_counts_trainers_that_failed_for_good():
    """The job's controller does not replace them."""
    lost = job(record=KNOWN, replicas=4, status={"trainer": {"failedIndexes": "1"}})
    replicas, _ = written(only(lost, resize(3, 5), pods=[OF_FOUR[0], *OF_FOUR[2:]]))
    assert replicas == 6


# --- whether a decision still holds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        pytest.param({"status": {"phase": "Running"}}, True, id="another status"),
        pytest.param({"metadata": {"resourceVersion": "9"}}, True, id="another version"),
        pytest.param({"metadata": {"generation": 2}}, False, id="another spec"),
        pytest.param({"metadata": {"uid": "namesake"}}, False, id="another job"),
        pytest.param({"record": replace(KNOWN, replicas=9)}, False, id="another record"),
        pytest.param(
            {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, False, id="one that has ended"
        ),
    ],
)
def test_a_decision_holds_as_long_as_nothing_it_was_made_from_changed(change, holds):
    order = only(job(record=KNOWN, replicas=4), resize(4, 5))
    assert order.still_holds_for(job(**{"record": KNOWN, "replicas": 4, **change})) == holds


# --- without knowing how much there is ---------------------------------------------------------------------------------------


def test_all_jobs_are_clamped_to_their_bounds():
    jobs = [
        job("above", replicas=9),
        job("below", replicas=1),
        job("fixed", floor=3, ceiling=3),
        job("gang", gpu=1),
        job("large", replicas=5),
    ]
    found = clamp_to_bounds(made(jobs, now=NOW), "nodes cannot be read: no")
    assert [(each.id.name, each.before, each.after, each.reason) for each in found.resizes] == [
        ("above", 9, 6, ABOVE_MAXIMUM),
        ("below", 1, 2, REACHING_MINIMUM),
        ("gang", 0, 2, ADMITTED),
    ]
    assert [each.id.name for each in found.waiting] == ["below", "gang", "large"]
    assert {(each.reason, each.is_below_floor) for each in found.waiting} == {(CAPACITY_UNKNOWN, False)}


def test_the_annotation_is_what_was_given():
    order = only(job())
    assert order.patch("1")["metadata"]["annotations"] == {constants.SHARING_ANNOTATION: encode_record(order.record)}

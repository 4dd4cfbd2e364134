"""Sizes that another client writes: granted from free capacity, answered at most so often, and noted with their writer."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from raytide.api.config import SharingConfig
from raytide.api.sharing_record import (
    GROWING,
    MAX_TIMES,
    MAX_WRITER_LENGTH,
    REQUESTED,
    RequestNote,
    ResizeNote,
    SharingRecord,
    encode_record,
    parse_record,
)
from raytide.fairshare.algorithm.model import Allocation
from raytide.fairshare.job_view import shared_job
from raytide.fairshare.patch_plan import plan_patches
from raytide.fairshare.size_requests import last_request, next_note, pause_until, writer_of
from raytide.fairshare.snapshot import SnapshotBuilder
from raytide.fairshare.unknown_capacity import clamp_to_bounds
from support.training_builders import trainingjob
from unit.fairshare.harness import Stage
from unit.fairshare.test_participants import UID, job, pod_of

pytestmark = pytest.mark.rule("FD:TJ3-2", "TJ:3.21")

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FOUR = SharingRecord(UID, 4, is_admitted=True, admitted_at=NOW - timedelta(hours=1))


def noted(replicas, times=1, age_s=0.0):
    return RequestNote(NOW - timedelta(seconds=age_s), replicas, times)


def answer(written, note=None, *, size=4, resizes=(), is_answered=True):
    found = job(record=replace(FOUR, request=note, resizes=resizes), replicas=written)
    return next_note(found, size, written if is_answered and written > 4 else None, NOW)


# --- notes and pauses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "pause_s"), [(1, 0), (2, 30), (3, 60), (4, 120), (5, 240), (6, 300), (7, 300), (MAX_TIMES, 300)]
)
def test_pauses_double_after_the_second_request(times, pause_s):
    assert pause_until(noted(6, times)) == NOW + timedelta(seconds=pause_s)


@pytest.mark.parametrize(
    ("replicas", "times", "age_s", "counts"),
    [
        pytest.param(6, 1, 299, True, id="for more"),
        pytest.param(6, 6, 300, False, id="for more, five minutes ago"),
        pytest.param(2, 6, 599, True, id="for less, while growth waits and for five minutes after that"),
        pytest.param(2, 6, 600, False, id="for less, longer ago"),
        pytest.param(6, 1, -3600, False, id="by a clock that was set back"),
    ],
)
def test_a_request_counts_for_five_minutes(replicas, times, age_s, counts):
    note = noted(replicas, times, age_s)
    record = replace(FOUR, request=note)
    assert last_request(job(record=record, replicas=4), NOW) == (note if counts else None)
    assert last_request(job(record=record, replicas=6), NOW) == (note if age_s > 0 else None), "another one waits"


def test_requests_that_are_not_granted_in_full_count():
    assert answer(6).times == 1
    assert answer(6, noted(9, 2)).times == 3, "the number does not matter"
    assert answer(6, noted(6, MAX_TIMES)).times == MAX_TIMES
    assert answer(6, noted(6, 6, age_s=300)).times == 7, "it waited for the end of the pause"
    assert answer(6, size=6) is None
    assert answer(9, size=6).replicas == 9, "a size above the maximum is never granted in full"


def test_a_note_stays_until_it_is_granted_or_forgotten():
    note = noted(6, 2)
    assert answer(6, note, is_answered=False) == note
    assert answer(4, note) == note
    assert answer(4, note, size=6) is None, "sharing has scaled the job up"
    assert answer(4, noted(6, 2, age_s=300)) is None


def test_a_smaller_size_counts_again_if_sharing_has_scaled_the_job_up_since():
    grown, scaled = ResizeNote(NOW, 2, 4, GROWING), ResizeNote(NOW, 5, 4, REQUESTED)
    assert answer(2, resizes=(grown,)).times == 0
    assert answer(2, noted(2, 0), resizes=(grown,)).times == 1
    assert answer(2, noted(3, 0), resizes=(scaled,)).times == 0, "a user scales the job down step by step"
    assert answer(6, noted(3, 0)).times == 1, "and then up"


def test_the_record_has_the_note():
    record = replace(FOUR, request=RequestNote(NOW, 16, 3, "keda"))
    assert parse_record(encode_record(record)) == record
    long = replace(FOUR, request=RequestNote(NOW, 16, 10**9, "k" * 9999))
    read = parse_record(encode_record(long)).request
    assert (read.times, len(read.writer)) == (MAX_TIMES, MAX_WRITER_LENGTH)


@pytest.mark.parametrize(
    "entry", ['"x"', "{}", '{"at": 1, "replicas": 2}', '{"at": "2026-01-01T00:00:00Z", "replicas": -1}']
)
def test_an_unreadable_note_counts_as_none(entry):
    assert parse_record(f'{{"uid": "u", "replicas": 1, "request": {entry}}}').request is None


# --- the writer --------------------------------------------------------------------------------------------------------------


def managed(*managers, field="f:replicas"):
    fields = {"f:spec": {"f:trainer": {field: {}}}}
    entries = [
        {"manager": name, "time": f"2026-01-01T00:00:0{second}Z", "fieldsV1": fields}
        for second, name in enumerate(managers)
    ]
    obj = trainingjob()
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}}


@pytest.mark.parametrize(
    ("obj", "writer"),
    [
        pytest.param(managed("kubectl", "keda"), "keda", id="the last one"),
        pytest.param(managed("keda", "raytide"), "keda", id="not the operator"),
        pytest.param(managed("keda", field="f:image"), "", id="not of another field"),
        pytest.param(managed("k" * 9999), "k" * (MAX_WRITER_LENGTH - 1) + "…", id="a long name is cut"),
        pytest.param(managed(), "", id="none is known"),
        pytest.param(
            {**trainingjob(), "metadata": {"name": "j", "managedFields": [1, {"fieldsV1": "x"}]}}, "", id="odd"
        ),
    ],
)
def test_the_writer_is_read_from_the_managed_fields(obj, writer):
    assert writer_of(shared_job(obj).job) == writer


# --- without known capacity ---------------------------------------------------------------------------------------------------


def test_while_capacity_is_unknown_a_request_is_granted_within_the_bounds():
    asking = job(record=FOUR, replicas=9)
    pools = SnapshotBuilder(SharingConfig())
    pool = pools.build([asking], [pod_of(index, "n1") for index in range(4)], (), now=NOW)
    (order,) = plan_patches([asking], pool, clamp_to_bounds(pool, "forbidden"), NOW, trainers=pools.trainers).patches
    assert (order.record.replicas, order.record.resizes[-1].reason) == (6, REQUESTED)


def test_in_a_pause_nothing_is_written():
    """Otherwise two clients would write the spec in turn."""
    asking = job(record=replace(FOUR, request=noted(6, 2, age_s=10), at=NOW), replicas=6)
    pools = SnapshotBuilder(SharingConfig())
    pool = pools.build([asking], [pod_of(index, "n1") for index in range(4)], (), now=NOW)
    assert plan_patches([asking], pool, Allocation(), NOW, trainers=pools.trainers).patches == ()
    assert pools.changes_at == NOW + timedelta(seconds=20)


# --- on a cluster ------------------------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_on_an_idle_cluster_a_request_is_granted_at_once_and_no_more_than_it():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 8)
        await stage.until("it grows", lambda: len(stage.placed("a")) == 8)
        stage.scale("a", 3)
        await stage.until("it is scaled down", lambda: stage.record("a").replicas == 3)
        stage.scale("a", 6)
        await stage.until("and up, in its cooldown", lambda: len(stage.placed("a")) == 6, within_s=5)
        assert [note.reason for note in stage.record("a").resizes[-2:]] == [REQUESTED, REQUESTED]
        assert stage.sizes() == {"a": 6}


@pytest.mark.looptime
async def test_what_the_jobs_own_terminating_pods_hold_is_granted_once_it_is_free():
    stage = Stage(grace_s=8.0)
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 8)
        await stage.until("it grows", lambda: len(stage.placed("a")) == 8)
        stage.scale("a", 4)
        await asyncio.sleep(3)
        stage.scale("a", 8)
        await stage.until("it is granted in the cooldown", lambda: stage.record("a").replicas == 8, within_s=12)
        assert stage.record("a").resizes[-1].reason == REQUESTED


@pytest.mark.looptime
async def test_beyond_the_capacity_what_is_free_is_granted_and_the_size_replaced():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 16)
        await stage.until("it grows", lambda: len(stage.placed("a")) == 8)
        stage.scale("a", 4)
        await stage.until("it is scaled down", lambda: stage.record("a").replicas == 4)
        stage.scale("a", 12)
        await stage.until("it is granted in part", lambda: stage.sizes() == {"a": 8})
        note = stage.record("a").resizes[-1]
        assert (note.reason, note.message) == (REQUESTED, "4→8, 12 requested in spec.trainer.replicas")
        assert len(stage.pods("a")) == 8
        request = stage.record("a").request
        assert (request.replicas, request.times, request.writer) == (12, 1, "kubectl")


@pytest.mark.looptime
async def test_without_sharing_the_size_means_what_it_says():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 16, scaling={"enabled": False})
        await stage.until("it has its minimum", lambda: len(stage.placed("a")) == 2)
        stage.scale("a", 12)
        await stage.until("all pods are created", lambda: len(stage.pods("a")) == 12)
        await asyncio.sleep(60)
        assert stage.sizes() == {"a": 12}


@pytest.mark.looptime
async def test_a_client_that_undoes_each_growth_is_left_alone_for_longer_and_longer():
    """GitOps with a size in the manifest: the job must not be resized every 30 s for ever."""
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 8)
        await stage.until("it grows", lambda: len(stage.placed("a")) == 8)
        grown = 0
        for _ in range(1800):
            await asyncio.sleep(1)
            if stage.sizes()["a"] == 8:
                grown += 1
                stage.scale("a", 3, "argocd")
        assert 5 <= grown <= 12
        assert stage.record("a").request.writer == "argocd"

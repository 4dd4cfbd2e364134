"""Transfers: who gave to whom, by uids that become names only for a caller who may list both."""

from datetime import UTC, datetime, timedelta

import pytest

from raytide.api.sharing_record import (
    GROWING,
    INSUFFICIENT_CAPACITY,
    REBALANCED,
    RECLAIMED,
    ResizeNote,
    SharingRecord,
    encode_record,
)
from raytide.api.trainingjob_constants import SHARING_ANNOTATION
from raytide.explain.model import Verdict
from raytide.explain.overview import Lane, Resized, lane_of
from raytide.explain.transfers import MAX_TRANSFERS, as_json, transfers_of
from support.stored_workloads import job_object

pytestmark = [pytest.mark.rule("SC:S21"), pytest.mark.rule("FD:SEC-F7")]

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECRET = "secret-project"


def job(name: str, *resizes: Resized, namespace: str = "a", kind: str = "TrainingJob") -> Lane:
    return Lane(kind, namespace, name, 4, 4, Verdict.WAITS, uid=f"uid-{name}", resizes=resizes)


def gave(at: int, *receivers: str, for_job: str = "") -> Resized:
    return Resized(at, 8, 4, for_job, tuple(f"uid-{name}" for name in receivers))


def texts(*lanes: Lane) -> dict[str, list[tuple[int, str]]]:
    return {key.name: [(each.at, each.text) for each in found] for key, found in transfers_of(lanes).items()}


def test_both_sides_have_it_with_the_name_of_the_other():
    assert texts(job("bert", gave(7, "gpt")), job("gpt", namespace="b")) == {
        "bert": [(7, "gave 4 of 8 trainers to TrainingJob b/gpt")],
        "gpt": [(7, "received capacity of TrainingJob a/bert, which gave 4 of 8 trainers")],
    }


def test_a_raycluster_receives_too():
    found = transfers_of([job("bert", gave(7, "etl")), job("etl", kind="RayCluster")])
    assert [each.text for each in found[("RayCluster", "a", "etl")]] == [
        "received capacity of TrainingJob a/bert, which gave 4 of 8 trainers"
    ]


@pytest.mark.parametrize(
    ("receivers", "text"),
    [
        (("hidden",), "gave 4 of 8 trainers to another workload"),
        (("hidden", "hidden2"), "gave 4 of 8 trainers to another workload"),
        (("gpt", "hidden"), "gave 4 of 8 trainers to TrainingJob b/gpt and another workload"),
    ],
)
def test_a_receiver_that_the_caller_cannot_list_has_no_name(receivers, text):
    assert texts(job("bert", gave(7, *receivers)), job("gpt", namespace="b"))["bert"] == [(7, text)]


def test_a_giver_that_the_caller_cannot_list_has_no_name():
    assert texts(job("gpt", Resized(9, 2, 6))) == {
        "gpt": [(9, "grew from 2 to 6 trainers with capacity of another workload")]
    }


def test_growth_is_not_marked_besides_what_a_known_giver_gave_for_it():
    lanes = (job("bert", gave(7, "gpt")), job("gpt", Resized(5, 1, 2), Resized(9, 2, 6), Resized(12, 6, 7)))
    assert [at for at, _ in texts(*lanes)["gpt"]] == [5, 7, 12]


def test_a_job_that_gives_to_its_own_pods_has_no_mark():
    assert texts(job("bert", gave(7, "bert"))) == {}


def test_a_record_without_uids_names_a_receiver_of_its_own_namespace():
    lanes = (job("bert", gave(7, for_job="a/gpt"), gave(8, for_job="a/gone")), job("gpt"))
    assert texts(*lanes)["bert"] == [
        (7, "gave 4 of 8 trainers to TrainingJob a/gpt"),
        (8, "gave 4 of 8 trainers to another workload"),
    ]


def test_a_job_that_was_created_again_has_not_received_what_its_predecessor_did():
    again = Lane("TrainingJob", "a", "gpt", 4, 4, Verdict.WAITS, uid="uid-new")
    assert texts(job("bert", gave(7, "gpt")), again) == {"bert": [(7, "gave 4 of 8 trainers to another workload")]}


def test_the_number_of_marks_of_a_lane_is_bounded():
    givers = [job(f"giver{number}", *(gave(10 * at + number, "gpt") for at in range(10))) for number in range(9)]
    found = transfers_of([*givers, job("gpt")])
    marks = found[("TrainingJob", "a", "gpt")]
    assert [each.at for each in marks] == sorted(10 * at + n for at in range(10) for n in range(9))[-MAX_TRANSFERS:]


def test_the_json_has_time_direction_and_text():
    (found,) = transfers_of([job("bert", gave(7, "hidden"))]).values()
    assert as_json(found) == [{"at": 7, "gave": True, "text": "gave 4 of 8 trainers to another workload"}]


# --- lanes have what the record says -----------------------------------------------------------------------------------------


def lane_with(*notes: ResizeNote, uid: str = "uid-1") -> Lane:
    obj = job_object("bert")
    obj["metadata"] |= {"uid": "uid-1", "annotations": {SHARING_ANNOTATION: encode_record(SharingRecord(uid, 4, resizes=notes))}}  # fmt: skip
    return lane_of("TrainingJob", obj, NOON)


def note(before: int, after: int, reason: str, *uids: str, for_job: str = "", seconds: int = 0) -> ResizeNote:
    return ResizeNote(NOON + timedelta(seconds=seconds), before, after, reason, f"about {SECRET}", for_job, uids)


def test_a_lane_has_the_resizes_that_concern_others():
    lane = lane_with(
        note(8, 6, RECLAIMED, "uid-2", "uid-3"),
        note(6, 5, RECLAIMED),
        note(5, 6, REBALANCED, seconds=3),
        note(6, 8, GROWING),
        note(8, 7, INSUFFICIENT_CAPACITY),
        note(8, 7, REBALANCED, for_job="default/gpt"),
    )
    at = int(NOON.timestamp())
    assert lane.resizes == (
        Resized(at, 8, 6, "", ("uid-2", "uid-3")),
        Resized(at + 3, 5, 6),
        Resized(at, 8, 7, "default/gpt"),
    )
    assert lane.uid == "uid-1"
    assert SECRET not in repr(lane)


def test_a_record_that_was_copied_with_a_manifest_has_no_effect():
    assert lane_with(note(8, 6, RECLAIMED, "uid-2"), uid="uid-of-another").resizes == ()

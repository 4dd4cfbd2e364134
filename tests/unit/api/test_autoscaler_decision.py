"""The decision record: it is read back as written, invalid parts are skipped, and its size is bounded."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raytide.api.autoscaler_decision import (
    MAX_NAMES_PER_GROUP,
    MAX_RECORD_BYTES,
    Backoff,
    DecisionRecord,
    GroupDecision,
    encode_record,
    parse_record,
)
from raytide.diagnosis.model import Diagnosis

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FULL = DecisionRecord(
    cluster="uid-demo",
    head="uid-head",
    at=NOON,
    groups={
        "gpu": GroupDecision(
            replicas=20,
            delete=("demo-gpu-worker-aaaaa", "demo-gpu-worker-bbbbb"),
            adopted_replicas=30,
            backoff=Backoff(2, NOON),
            why=(Diagnosis("MaxReached", 4, "maxReplicas is 20"),),
        )
    },
    why=(Diagnosis("NoFittingGroup", 3, "{TPU: 1}"),),
)
WRITTEN = {
    "v": 1,
    "cluster": "uid-demo",
    "head": "uid-head",
    "at": "2026-01-01T12:00:00Z",
    "groups": {
        "gpu": {
            "replicas": 20,
            "delete": ["demo-gpu-worker-aaaaa", "demo-gpu-worker-bbbbb"],
            "foreign": 30,
            "backoff": {"n": 2, "until": "2026-01-01T12:00:00Z"},
            "why": [{"reason": "MaxReached", "count": 4, "message": "maxReplicas is 20"}],
        }
    },
    "why": [{"reason": "NoFittingGroup", "count": 3, "message": "{TPU: 1}"}],
}


def read(**changes):
    """The full record as another sidecar may have written it."""
    return parse_record(json.dumps({**WRITTEN, **changes}))


def gpu(**changes):
    """What is read of the one group."""
    record = read(groups={"gpu": {**WRITTEN["groups"]["gpu"], **changes}})
    assert record is not None
    return record.groups.get("gpu")


@pytest.mark.rule("D19")
def test_the_record_is_written_as_the_contract_shows_it():
    assert json.loads(encode_record(FULL)) == WRITTEN
    assert parse_record(encode_record(FULL)) == FULL


@pytest.mark.rule("D19")
def test_what_is_empty_is_not_written():
    record = DecisionRecord("u", "h", None, {"a": GroupDecision(0)})
    assert json.loads(encode_record(record)) == {"v": 1, "cluster": "u", "head": "h", "groups": {"a": {"replicas": 0}}}


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="no annotation"),
        pytest.param("", id="an empty one"),
        pytest.param("{", id="half a document"),
        pytest.param("[" * 100_000, id="a deep one"),
        pytest.param('"\ud800"', id="no unicode"),
        pytest.param("[]", id="a list"),
        pytest.param("{}", id="no uids"),
        pytest.param('{"cluster": "u"}', id="no head"),
        pytest.param('{"cluster": 1, "head": "h"}', id="a number for a uid"),
    ],
)
def test_an_unreadable_record_is_none(text):
    assert parse_record(text) is None


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"v": 7, "news": {"a": [1]}}, FULL, id="a later version with fields of its own reads the same"),
        pytest.param({"at": "yesterday"}, None, id="a moment that is none"),
        pytest.param({"at": 12}, None, id="a number for a moment"),
    ],
)
def test_a_record_of_another_sidecar(changes, expected):
    record = read(**changes)
    assert record is not None
    assert record.groups == FULL.groups
    assert record.at == (expected.at if expected else None)


@pytest.mark.rule("D19")
@pytest.mark.parametrize("groups", [None, [], "gpu", {"gpu": None}, {"gpu": []}, {"gpu": {}}])
def test_invalid_groups_are_skipped(groups):
    record = read(groups=groups)
    assert record is not None
    assert record.groups == {}


@pytest.mark.rule("D19")
@pytest.mark.parametrize("replicas", [-1, 2.5, "20", True, None, 2**31, 10**30])
def test_a_group_with_invalid_replicas_is_skipped(replicas):
    assert gpu(replicas=replicas) is None


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        pytest.param({"delete": "all"}, "delete", (), id="names that are no list"),
        pytest.param({"delete": ["a", 1, None, "", "b"]}, "delete", ("a", "b"), id="a list with other things in it"),
        pytest.param({"foreign": "30"}, "adopted_replicas", None, id="a text for a foreign number"),
        pytest.param({"backoff": 3}, "backoff", None, id="a number for a back-off"),
        pytest.param({"backoff": {"n": 1}}, "backoff", None, id="a back-off without end"),
        pytest.param({"why": "because"}, "why", (), id="a text for reasons"),
        pytest.param(
            {"why": [1, {}, {"reason": "Max"}]}, "why", (Diagnosis("Max"),), id="a list with other things in it too"
        ),
        pytest.param(
            {"why": [{"reason": "Max", "count": "x", "message": 1}]},
            "why",
            (Diagnosis("Max"),),
            id="invalid counts and messages",
        ),
    ],
)
def test_an_invalid_field_is_skipped_and_the_others_are_read(changes, field, expected):
    decision = gpu(**changes)
    assert decision is not None
    assert decision.replicas == 20
    assert getattr(decision, field) == expected


# --- size ------------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
reasons = st.lists(st.builds(Diagnosis, texts.filter(bool), st.integers(0, 10**6), texts), max_size=3).map(tuple)
decisions = st.builds(
    GroupDecision,
    st.integers(0, 2**31 - 1),
    st.lists(texts.filter(bool), max_size=5).map(tuple),
    st.none() | st.integers(0, 2**31 - 1),
    st.none() | st.builds(Backoff, st.integers(0, 99), st.just(NOON)),
    reasons,
)
records = st.builds(
    DecisionRecord,
    texts.filter(bool),
    texts.filter(bool),
    st.none() | st.just(NOON),
    st.dictionaries(texts, decisions, max_size=5),
    reasons,
)


@pytest.mark.rule("D19")
@given(records)
def test_what_is_written_is_read_back(record):
    assert parse_record(encode_record(record)) == record


@pytest.mark.rule("D19")
@settings(deadline=None, max_examples=20)
@given(
    record=records,
    groups=st.integers(1, 1200),
    names=st.integers(0, 700),
    reasons=st.integers(0, 5),
    message=st.integers(0, 2_000),
)
def test_it_is_never_too_large_and_always_a_record(record, groups, names, reasons, message):
    why = (Diagnosis("MaxReached", 1, "é" * message),) * reasons
    delete = tuple(f"demo-group-worker-{i:05d}" for i in range(names))
    many = {f"group-{i}": GroupDecision(i, delete, 1, Backoff(1, NOON), why) for i in range(groups)}
    text = encode_record(DecisionRecord("u", "h", NOON, {**record.groups, **many}, why))
    assert len(text.encode()) <= MAX_RECORD_BYTES
    found = parse_record(text)
    assert found is not None
    for name, decision in found.groups.items():
        assert len(decision.delete) <= MAX_NAMES_PER_GROUP
        original = {**record.groups, **many}[name]
        assert (decision.replicas, decision.adopted_replicas) == (original.replicas, original.adopted_replicas)
        assert original.delete[: len(decision.delete)] == decision.delete


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("message", "names", "kept"),
    [
        pytest.param(1000, 500, "names", id="messages are shortened before names are dropped"),
        pytest.param(0, 5000, "messages", id="names beyond 500 are dropped even if more fit"),
    ],
)
def test_what_is_given_up_first(message, names, kept):
    delete = tuple(f"demo-gpu-worker-{i:05d}" for i in range(names))
    decision = GroupDecision(1, delete, why=(Diagnosis("MaxReached", 1, "m" * message),) * 100)
    found = parse_record(encode_record(DecisionRecord("u", "h", NOON, {"gpu": decision})))
    assert found is not None
    assert found.groups["gpu"].delete == delete[:MAX_NAMES_PER_GROUP]
    assert len(found.groups["gpu"].why) == 100, "reasons outlive their words"
    if kept == "names":
        assert all(0 < len(why.message) <= 200 for why in found.groups["gpu"].why)


# --- a foreign number ------------------------------------------------------------------------------------------------


@pytest.mark.rule("D19")
@pytest.mark.parametrize(
    ("in_spec", "adopted_replicas", "adopted"),
    [
        pytest.param(20, None, None, id="the same number is not foreign"),
        pytest.param(30, None, 30, id="a higher one is adopted"),
        pytest.param(30, 30, None, id="once"),
        pytest.param(40, 30, 40, id="another higher one is adopted again"),
        pytest.param(25, 30, 25, id="even if it is less than the last"),
        pytest.param(1, None, None, id="a lower one is not adopted"),
        pytest.param(None, None, None, id="no number is no order"),
    ],
)
def test_a_foreign_number(in_spec, adopted_replicas, adopted):
    assert GroupDecision(20, adopted_replicas=adopted_replicas).replicas_to_adopt(in_spec) == adopted


@pytest.mark.rule("FD:AS-A9")
def test_names_are_given_up_before_reasons_and_back_offs():
    """They are in the spec all the same; a back-off stands nowhere else."""
    names = tuple(f"a-cluster-with-a-long-name-group-worker-{index:05d}" for index in range(MAX_NAMES_PER_GROUP))
    decision = GroupDecision(
        1000, names, backoff=Backoff(3, NOON, NOON), why=(Diagnosis("Unschedulable", 4, "no node"),)
    )
    read_back = parse_record(encode_record(DecisionRecord("u", "h", NOON, {f"g{i}": decision for i in range(4)})))
    assert read_back is not None
    for found in read_back.groups.values():
        assert (found.backoff, found.why) == (decision.backoff, decision.why)
        assert found.backoff.newest == NOON
        assert 0 < len(found.delete) < MAX_NAMES_PER_GROUP

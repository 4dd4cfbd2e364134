"""The record of the sharing pass is read back as written, and invalid text is no record."""

from datetime import UTC, datetime

import pytest

from raytide.api.sharing_record import (
    MAX_MESSAGE_LENGTH,
    MAX_PLACEMENTS,
    MAX_RECORD_BYTES,
    MAX_RESIZES,
    MAX_VICTIMS,
    ResizeNote,
    SharingRecord,
    WaitingNote,
    encode_record,
    parse_record,
    placements_of,
    victims_of,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOTE = ResizeNote(NOW, 8, 6, "Reclaimed", "8→6 for ns/other", "ns/other", ("uid-1", "uid-2"))
FULL = SharingRecord(
    uid="u",
    replicas=6,
    pservers=3,
    is_admitted=True,
    admitted_at=NOW,
    waiting=WaitingNote("Fragmented", "best node lacks 1 CPU", is_below_minimum=False),
    resizes=(NOTE,),
    victims=("j-trainer-3", "j-trainer-1"),
    placements={"node-1": 2, "node-2.example.com": 1},
    core_nodes={"master": {"node-1": 1}, "pserver": {"node-1": 1, "node-3": 2}},
    at=NOW,
)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(FULL, id="everything"),
        pytest.param(SharingRecord("u", 0), id="next to nothing"),
        pytest.param(SharingRecord("u", 1, waiting=WaitingNote("R", "")), id="a reason without a message"),
        pytest.param(
            SharingRecord("u", 0, waiting=WaitingNote("R", "m", reserved_since=NOW, reserved_nodes=("n1", "n2"))),
            id="a reservation",
        ),
        pytest.param(
            SharingRecord("u", 3, waiting=WaitingNote("R", "m", is_below_minimum=False, promised_since=NOW)),
            id="growth that waits for the rest",
        ),
    ],
)
def test_what_is_written_can_be_read(record):
    assert parse_record(encode_record(record)) == record


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        '"u"',
        '{"uid": "u"}',
        '{"replicas": 1}',
        '{"uid": "", "replicas": 1}',
        '{"uid": 3, "replicas": 1}',
        '{"uid": "u", "replicas": true}',
        '{"uid": "u", "replicas": -1}',
        '{"uid": "u", "replicas": 1e30}',
        "[" * 100_000,
        '{"uid": "u", "replicas": 1, "x": "' + "y" * MAX_RECORD_BYTES + '"}',
    ],
)
def test_an_unreadable_record_is_none(text):
    assert parse_record(text) is None


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        pytest.param('"from": "the future"', SharingRecord("u", 1), id="unknown fields are skipped"),
        pytest.param('"waiting": 3, "resizes": {}, "at": 5', SharingRecord("u", 1), id="invalid parts are skipped"),
        pytest.param('"resizes": [{"at": "x"}, 7, null]', SharingRecord("u", 1), id="invalid notes are skipped"),
        pytest.param('"admitted": "yes"', SharingRecord("u", 1), id="only true admits"),
        pytest.param(
            '"waiting": {"reason": "R", "reservedSince": "soon"}',
            SharingRecord("u", 1, waiting=WaitingNote("R", "")),
            id="a moment is a timestamp",
        ),
        pytest.param(
            '"waiting": {"reason": "R", "reservedNodes": [7, "n1", "No_Node", ""]}',
            SharingRecord("u", 1, waiting=WaitingNote("R", "", reserved_nodes=("n1",))),
            id="reserved nodes are names of nodes",
        ),
        pytest.param('"placements": ["n1"]', SharingRecord("u", 1), id="placements are an object"),
        pytest.param(
            '"placements": {"n1": 2, "n2": 0, "n3": "1", "": 1, "No_Node": 1, "-": 1}',
            SharingRecord("u", 1, placements={"n1": 2}),
            id="of node names and counts",
        ),
        pytest.param('"coreNodes": ["n1"]', SharingRecord("u", 1), id="core nodes are an object"),
        pytest.param(
            '"coreNodes": {"master": {"n1": 1}, "pserver": ["n1"], "trainer": {"n1": 1}}',
            SharingRecord("u", 1, core_nodes={"master": {"n1": 1}}),
            id="of the roles that start before trainers",
        ),
        pytest.param('"victims": "j-trainer-1"', SharingRecord("u", 1), id="victims are a list"),
        pytest.param(
            '"victims": [7, null, "", "j-trainer-1"]', SharingRecord("u", 1, victims=("j-trainer-1",)), id="of names"
        ),
    ],
)
def test_unknown_and_invalid_parts_are_skipped(extra, expected):
    assert parse_record('{"uid": "u", "replicas": 1, ' + extra + "}") == expected


def test_it_stays_small():
    notes = tuple(ResizeNote(NOW, i, i + 1, "Growing", "w" * 5000, "n" * 5000) for i in range(50))
    text = encode_record(SharingRecord("u", 1, waiting=WaitingNote("R", "w" * 5000), resizes=notes))
    assert len(text.encode()) < MAX_RECORD_BYTES
    read = parse_record(text)
    assert [note.before for note in read.resizes] == list(range(50 - MAX_RESIZES, 50))
    assert len(read.waiting.message) == len(read.resizes[0].message) == MAX_MESSAGE_LENGTH


def test_a_record_names_at_most_a_thousand_victims():
    names = tuple(f"j-trainer-{i}" for i in range(MAX_VICTIMS + 5))
    assert parse_record(encode_record(SharingRecord("u", 1, victims=names))).victims == names[:MAX_VICTIMS]
    listed = ", ".join(f'"{name}"' for name in names)
    assert parse_record('{"uid": "u", "replicas": 1, "victims": [' + listed + "]}").victims == names[:MAX_VICTIMS]


def test_a_record_has_at_most_a_hundred_planned_nodes():
    nodes = {f"node-{i:03}": 1 for i in range(MAX_PLACEMENTS + 5)}
    assert list(parse_record(encode_record(SharingRecord("u", 1, placements=nodes))).placements) == list(nodes)[:100]
    listed = ", ".join(f'"{name}": 1' for name in nodes)
    assert len(parse_record('{"uid": "u", "replicas": 1, "placements": {' + listed + "}}").placements) == MAX_PLACEMENTS


def test_a_record_that_would_be_too_long_to_be_read_names_no_victims():
    names = tuple(f"{'n' * 60}-trainer-{i}" for i in range(MAX_VICTIMS))
    record = SharingRecord(
        "u", 1, resizes=(NOTE,), victims=names, placements={"n1": 1}, core_nodes={"master": {"n1": 1}}
    )
    assert parse_record(encode_record(record)) == SharingRecord("u", 1, resizes=(NOTE,))


@pytest.mark.parametrize(
    ("record", "replicas", "expected"),
    [
        pytest.param(FULL, 6, {"j-trainer-1", "j-trainer-3"}, id="at the size of the record"),
        pytest.param(FULL, 5, set(), id="another client wrote a size"),
        pytest.param(FULL, None, set(), id="another client removed the size"),
        pytest.param(None, 6, set(), id="no record"),
    ],
)
def test_victims_count_at_the_size_for_which_they_were_named(record, replicas, expected):
    assert victims_of(record, replicas) == expected
    assert bool(placements_of(record, replicas)) == bool(expected)

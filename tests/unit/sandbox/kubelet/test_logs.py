"""The requested part of a log, and its timestamps."""

from datetime import timedelta

import pytest

from raytide_sandbox.streaming.logs import LogClock, LogOptions, read_log, read_options, tail_offset
from support.kubelet_fakes import EPOCH

LATER = EPOCH + timedelta(seconds=100)


async def shown(path, clock=None, *, grows=(), **options):
    """Everything that `read_log` yields; while following, each text of `grows` is appended at one look."""
    waiting = list(grows)

    async def pause(_seconds):
        with path.open("ab") as file:
            file.write(waiting.pop(0))

    reading = read_log(
        path, LogOptions(**options), clock or LogClock(), may_grow=lambda: bool(waiting), now=lambda: LATER, pause=pause
    )
    return b"".join([chunk async for chunk in reading])


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthree\n")
    return path


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, b"one\ntwo\nthree\n", id="everything"),
        pytest.param({"tail_lines": 2}, b"two\nthree\n", id="the last two lines"),
        pytest.param({"tail_lines": 0}, b"", id="no lines"),
        pytest.param({"tail_lines": 9}, b"one\ntwo\nthree\n", id="more lines than there are"),
        pytest.param({"limit_bytes": 5}, b"one\nt", id="so many bytes"),
        pytest.param({"tail_lines": 1, "limit_bytes": 3}, b"thr", id="both"),
    ],
)
async def test_it_shows(log, options, expected):
    assert await shown(log, **options) == expected


async def test_following_a_log_returns_new_output_until_the_container_ends(log):
    assert (
        await shown(log, is_following=True, tail_lines=1, grows=[b"four\n", b"fi", b"ve\n"]) == b"three\nfour\nfive\n"
    )


async def test_a_log_that_is_not_there_is_empty(tmp_path):
    assert await shown(tmp_path / "none", tail_lines=3) == b""


async def test_an_unfinished_line_counts_as_one(log):
    log.write_bytes(b"one\ntwo")
    assert await shown(log, tail_lines=1) == b"two"


@pytest.mark.parametrize("lines", [1, 3, 5000, 30_000])
def test_the_tail_of_a_long_log_is_found(tmp_path, lines):
    path = tmp_path / "log"
    written = [f"line {number}\n".encode() for number in range(20_000)]
    path.write_bytes(b"".join(written))
    with path.open("rb") as file:
        file.seek(tail_offset(path, lines))
        assert file.read() == b"".join(written[-lines:])


async def test_timestamps_are_of_the_read_that_first_saw_the_line(log):
    clock = LogClock()
    clock.note(4, EPOCH)
    clock.note(8, EPOCH + timedelta(seconds=1))
    assert (await shown(log, clock, has_timestamps=True)).decode().splitlines() == [
        "2026-01-01T00:00:00.000000Z one",
        "2026-01-01T00:00:01.000000Z two",
        "2026-01-01T00:01:40.000000Z three",
    ]


async def test_since_leaves_out_what_is_known_to_be_older(log):
    clock = LogClock()
    clock.note(4, EPOCH)
    clock.note(8, EPOCH + timedelta(seconds=50))
    assert await shown(log, clock, since=EPOCH + timedelta(seconds=40)) == b"two\nthree\n"


def test_options_are_read_from_a_query():
    query = {"follow": "true", "tailLines": "5", "sinceSeconds": "60", "timestamps": "1", "limitBytes": "7"}
    assert read_options(query, LATER) == LogOptions(
        is_following=True, has_timestamps=True, tail_lines=5, limit_bytes=7, since=LATER - timedelta(seconds=60)
    )


def test_an_invalid_number_is_an_error():
    with pytest.raises(ValueError):
        read_options({"tailLines": "many"}, LATER)

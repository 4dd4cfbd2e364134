"""Would a restart help? Only if a stream is dead while the API answers, or a pass is stuck."""

import pytest

from raytide.runtime.endpoints import address_of, report
from raytide.runtime.vitals import Vitals


class World:
    age_s = 0.0
    is_answered = True
    is_synced = True
    oldest_s = 0.0
    questions = 0

    async def ask(self):
        self.questions += 1
        return self.is_answered


@pytest.fixture
def world():
    return World()


@pytest.fixture
def vitals(world):
    return Vitals(
        stream_ages={"pods": lambda: world.age_s},
        is_answered=world.ask,
        is_synced=lambda: world.is_synced,
        oldest_pass_s=lambda: world.oldest_s,
    )


def is_alive(vitals):
    return report(vitals.liveness())[0]


def is_ready(vitals):
    return report(vitals.readiness())[0]


async def look(vitals, times):
    for _ in range(times):
        await vitals.look()


@pytest.mark.rule("D9")
@pytest.mark.parametrize(
    ("trouble", "looks", "verdict"),
    [
        pytest.param((5.0, True), 5, (True, True), id="a fresh stream is well"),
        pytest.param((91.0, True), 5, (True, True), id="an API that is just back: the stream may still rest"),
        pytest.param((91.0, True), 6, (False, True), id="stale for a minute while the API answers: a restart helps"),
        pytest.param((91.0, False), 9, (True, False), id="an API that is away: not ready, but alive"),
    ],
)
async def test_streams(world, vitals, trouble, looks, verdict):
    world.age_s, world.is_answered = trouble
    await look(vitals, looks)
    assert (is_alive(vitals), is_ready(vitals)) == verdict


async def test_a_stream_that_comes_back_is_forgiven(world, vitals):
    world.age_s = 91.0
    await look(vitals, 6)
    assert not is_alive(vitals)
    world.age_s = 1.0
    await look(vitals, 1)
    assert is_alive(vitals)


async def test_nobody_is_asked_while_all_is_well(world, vitals):
    await look(vitals, 3)
    assert world.questions == 0


def test_a_stuck_pass_is_told(world, vitals):
    world.oldest_s = 121.0
    is_well, text = report(vitals.liveness())
    assert not is_well
    assert "[-]passes oldest running for 121.0 s" in text


def test_ready_only_when_everything_is_listed(world, vitals):
    world.is_synced = False
    is_well, text = report(vitals.readiness())
    assert not is_well
    assert "[-]synced still listing" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", ("0.0.0.0", 8080)),
        ("127.0.0.1:9", ("127.0.0.1", 9)),
        ("[::1]:9", ("::1", 9)),
        ("0", None),
        (":0", None),
        ("", None),
    ],
)
def test_addresses(text, expected):
    assert address_of(text) == expected


@pytest.mark.parametrize("text", ["8080", "host", ":x", ":70000"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="is no address"):
        address_of(text)

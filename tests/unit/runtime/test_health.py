"""Would a restart help? Only if a stream is dead while the API answers, or a pass is stuck."""

import asyncio

import pytest

from raytide.runtime.health import HealthChecker
from raytide.runtime.http_endpoints import address_of, report


class World:
    """Its own only stream."""

    age_s = 0.0
    is_answered = True
    is_synced = True
    trouble = ""
    oldest_s = 0.0
    is_lease_alive = True
    has_rights = True
    is_needed = True
    questions = 0

    async def ask(self):
        self.questions += 1
        return self.is_answered


@pytest.fixture
def world():
    return World()


@pytest.fixture
def vitals(world):
    return HealthChecker(
        streams={"pods": world},
        is_answered=world.ask,
        oldest_pass_s=lambda: world.oldest_s,
        waiting=lambda: 7,
        also_alive={"lease": lambda: (world.is_lease_alive, "stuck")},
        also_ready={"rights": lambda: (world.has_rights, "missing: list pods")},
        is_needed=lambda stream: world.is_needed and stream == "pods",
    )


def is_alive(vitals):
    return report(vitals.liveness())[0]


def is_ready(vitals):
    return report(vitals.readiness())[0]


async def look(vitals, times):
    for _ in range(times):
        await vitals.probe()


@pytest.mark.rule("D9")
@pytest.mark.parametrize(
    ("trouble", "looks", "verdict"),
    [
        pytest.param((5.0, True), 5, (True, True), id="a fresh stream is well"),
        pytest.param((76.0, True), 3, (True, True), id="an API that is just back: the stream may still rest"),
        pytest.param((76.0, True), 4, (False, True), id="stale for four looks while the API answers: a restart helps"),
        pytest.param((76.0, False), 9, (True, False), id="an API that is away: not ready, but alive"),
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
    assert "[-]queue 7 keys queued, oldest pass running for 121.0 s" in text
    assert is_ready(vitals), "who works may be slow"


@pytest.mark.rule("SC:S18")
@pytest.mark.looptime
async def test_a_dead_stream_is_told_within_two_minutes(world, vitals):
    loop = asyncio.get_running_loop()
    died_at = loop.time()
    looking = asyncio.create_task(vitals.run())
    while is_alive(vitals):
        await asyncio.sleep(1)
        world.age_s = loop.time() - died_at
    looking.cancel()
    assert loop.time() - died_at <= 120


@pytest.mark.parametrize(
    ("change", "line"),
    [
        pytest.param({"is_synced": False}, "[-]stream-pods still listing, last activity 0 s ago", id="not listed yet"),
        pytest.param({"trouble": "cannot list pods: no"}, "[-]stream-pods cannot list pods: no, last", id="refused"),
        pytest.param({"has_rights": False}, "[-]rights missing: list pods", id="a right is missing"),
    ],
)
def test_not_ready_says_why(world, vitals, change, line):
    assert is_ready(vitals)
    vars(world).update(change)
    is_well, text = report(vitals.readiness())
    assert not is_well
    assert line in text
    assert is_alive(vitals), "a restart would not help"


def test_what_else_must_be_alive_counts(world, vitals):
    world.is_lease_alive = False
    is_well, text = report(vitals.liveness())
    assert not is_well
    assert "[-]lease stuck" in text


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
def test_what_is_no_address_is_rejected(text):
    with pytest.raises(ValueError, match="is not an address"):
        address_of(text)


@pytest.mark.rule("D9")
async def test_a_stream_that_nobody_follows_keeps_nobody_from_being_ready_and_makes_nobody_dead(world, vitals):
    world.is_needed, world.is_synced, world.age_s = False, False, 1000.0
    world.trouble = "waiting for CRD x"
    await look(vitals, 10)
    assert is_alive(vitals)
    assert is_ready(vitals)
    assert world.questions == 0
    assert "[+]stream-pods not needed: waiting for CRD x" in report(vitals.readiness())[1]
    world.is_needed = True
    assert not is_ready(vitals)

"""Liveness fails only if a restart would help: a stream is dead while the API responds, or a pass is stuck."""

import asyncio

import pytest

from raytide.runtime.health import HealthChecker
from raytide.runtime.http_endpoints import address_of, report


class Env:
    """Its own only stream."""

    age_s = 0.0
    is_answered = True
    is_synced = True
    error = ""
    oldest_s = 0.0
    is_lease_alive = True
    has_rights = True
    is_needed = True
    questions = 0

    async def ask(self):
        self.questions += 1
        return self.is_answered


@pytest.fixture
def env():
    return Env()


@pytest.fixture
def checker(env):
    return HealthChecker(
        streams={"pods": env},
        is_answered=env.ask,
        oldest_pass_s=lambda: env.oldest_s,
        waiting=lambda: 7,
        also_alive={"lease": lambda: (env.is_lease_alive, "stuck")},
        also_ready={"rights": lambda: (env.has_rights, "missing: list pods")},
        is_needed=lambda stream: env.is_needed and stream == "pods",
    )


def is_alive(checker):
    return report(checker.liveness())[0]


def is_ready(checker):
    return report(checker.readiness())[0]


async def probe_times(checker, times):
    for _ in range(times):
        await checker.probe()


@pytest.mark.rule("D9")
@pytest.mark.parametrize(
    ("error", "probes", "expected"),
    [
        pytest.param((5.0, True), 5, (True, True), id="a fresh stream is well"),
        pytest.param(
            (76.0, True), 3, (True, True), id="an API that recovered a moment ago: the stream may still be in backoff"
        ),
        pytest.param((76.0, True), 4, (False, True), id="stale for four looks while the API answers: a restart helps"),
        pytest.param((76.0, False), 9, (True, False), id="an API that is away: not ready, but alive"),
    ],
)
async def test_streams(env, checker, error, probes, expected):
    env.age_s, env.is_answered = error
    await probe_times(checker, probes)
    assert (is_alive(checker), is_ready(checker)) == expected


async def test_a_recovered_stream_makes_the_process_live_again(env, checker):
    env.age_s = 91.0
    await probe_times(checker, 6)
    assert not is_alive(checker)
    env.age_s = 1.0
    await probe_times(checker, 1)
    assert is_alive(checker)


async def test_no_request_is_sent_while_all_streams_are_active(env, checker):
    await probe_times(checker, 3)
    assert env.questions == 0


def test_a_stuck_pass_is_reported(env, checker):
    env.oldest_s = 121.0
    is_well, text = report(checker.liveness())
    assert not is_well
    assert "[-]queue 7 keys queued, oldest pass running for 121.0 s" in text
    assert is_ready(checker), "who works may be slow"


@pytest.mark.rule("SC:S18")
@pytest.mark.looptime
async def test_a_dead_stream_is_reported_within_two_minutes(env, checker):
    loop = asyncio.get_running_loop()
    died_at = loop.time()
    looking = asyncio.create_task(checker.run())
    while is_alive(checker):
        await asyncio.sleep(1)
        env.age_s = loop.time() - died_at
    looking.cancel()
    assert loop.time() - died_at <= 120


@pytest.mark.parametrize(
    ("change", "line"),
    [
        pytest.param({"is_synced": False}, "[-]stream-pods still listing, last activity 0 s ago", id="not listed yet"),
        pytest.param({"error": "cannot list pods: no"}, "[-]stream-pods cannot list pods: no, last", id="refused"),
        pytest.param({"has_rights": False}, "[-]rights missing: list pods", id="a right is missing"),
    ],
)
def test_a_readiness_failure_has_its_reason(env, checker, change, line):
    assert is_ready(checker)
    vars(env).update(change)
    is_well, text = report(checker.readiness())
    assert not is_well
    assert line in text
    assert is_alive(checker), "a restart would not help"


def test_what_else_must_be_alive_counts(env, checker):
    env.is_lease_alive = False
    is_well, text = report(checker.liveness())
    assert not is_well
    assert "[-]lease stuck" in text


@pytest.mark.rule("SE:C25")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", ("", 8080)),
        ("[::]:9", ("::", 9)),
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
async def test_a_stream_without_a_follower_affects_neither_readiness_nor_liveness(env, checker):
    env.is_needed, env.is_synced, env.age_s = False, False, 1000.0
    env.error = "waiting for CRD x"
    await probe_times(checker, 10)
    assert is_alive(checker)
    assert is_ready(checker)
    assert env.questions == 0
    assert "[+]stream-pods not needed: waiting for CRD x" in report(checker.readiness())[1]
    env.is_needed = True
    assert not is_ready(checker)

"""kopf as event source: the lag behind the informers, restarts, login and logs."""

import asyncio
import getpass
import itertools
import logging
import subprocess
import sys
import threading

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict
from yarl import URL

from raytide.api.meta import RAYCLUSTERS, TRAININGJOBS, Key
from raytide.controller.watch_lag import WatchLag
from raytide.manager import kopf_source as subject
from raytide.manager.kopf_source import (
    KopfEventSource,
    KopfLogin,
    LoginBackoff,
    NoNullItems,
    NullDiffBase,
    NullProgress,
    WatchedKind,
    metadata_only,
    read_only_kopf_settings,
    redirect_kopf_logs,
)
from raytide.runtime.clock import Clock
from support import virtual_time
from support.deadlines import PATIENCE

KEY = Key("default", "demo")


class FakeClock:
    at = 0.0

    def monotonic(self):
        return self.at


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def trailing(clock):
    return WatchLag(clock)


def test_an_informers_version_is_pending_until_kopf_delivers_it(trailing, clock):
    trailing.informer_saw(KEY, "5")
    clock.at = 7.0
    assert trailing.lag_s() == 7.0
    trailing.kopf_delivered(KEY, "5")
    assert trailing.lag_s() == 0.0


@pytest.mark.parametrize(
    ("delivered", "is_pending"),
    [
        pytest.param("4", True, id="an older version"),
        pytest.param("5", False, id="the same version"),
        pytest.param("10", False, id="a later version: versions are compared as numbers"),
    ],
)
def test_kopf_events_that_end_the_lag(trailing, clock, delivered, is_pending):
    trailing.informer_saw(KEY, "5")
    trailing.kopf_delivered(KEY, delivered)
    clock.at = 1.0
    assert bool(trailing.lag_s()) is is_pending


def test_a_kopf_event_before_the_informers_leaves_no_lag(trailing, clock):
    trailing.kopf_delivered(KEY, "5")
    trailing.informer_saw(KEY, "5")
    clock.at = 1.0
    assert trailing.lag_s() == 0.0


def test_a_debt_is_as_old_as_its_first_unpaid_version(trailing, clock):
    trailing.informer_saw(KEY, "5")
    clock.at = 4.0
    trailing.informer_saw(KEY, "6")
    clock.at = 6.0
    assert trailing.lag_s() == 6.0


def test_a_deleted_object_is_not_pending(trailing, clock):
    trailing.informer_saw(KEY, "5")
    trailing.informer_lost(KEY)
    clock.at = 99.0
    assert trailing.lag_s() == 0.0


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(("informer", "kopf"), id="the informer first"),
        pytest.param(("kopf", "informer"), id="kopf first"),
    ],
)
def test_objects_that_both_reported_as_deleted_leave_no_entry(trailing, order):
    trailing.informer_saw(KEY, "5")
    trailing.kopf_delivered(KEY, "5")
    for who in order:
        if who == "kopf":
            trailing.kopf_delivered(KEY, "6", is_gone=True)
        else:
            trailing.informer_lost(KEY)
    assert len(trailing) == 0


@pytest.mark.rule("FD:REL-G")
def test_a_version_delivered_after_the_deletion_is_dropped_by_reset(trailing, clock):
    trailing.informer_saw(KEY, "5")
    trailing.informer_lost(KEY)
    trailing.kopf_delivered(KEY, "5")
    trailing.reset()
    assert len(trailing) == 0


@pytest.mark.rule("FD:REL-G")
def test_what_a_new_kopf_reports_is_pending_no_more(trailing, clock):
    trailing.kopf_delivered(KEY, "5")
    trailing.reset()
    trailing.informer_saw(KEY, "5")
    trailing.kopf_delivered(KEY, "5")
    clock.at = 3.0
    assert trailing.lag_s() == 0.0


def test_a_recreated_object_is_pending_although_kopf_delivered_the_deletion_of_the_old_one(trailing, clock):
    trailing.informer_saw(KEY, "9")
    trailing.kopf_delivered(KEY, "8", is_gone=True)
    clock.at = 3.0
    assert trailing.lag_s() == 3.0


def test_a_new_kopf_gets_the_full_time(trailing, clock):
    trailing.informer_saw(KEY, "5")
    clock.at = 11.0
    trailing.reset()
    assert trailing.lag_s() == 0.0
    clock.at = 12.0
    assert trailing.lag_s() == 1.0


def new_kind(resource=RAYCLUSTERS, *, on_event=lambda *_: None, is_served=lambda: True):
    return WatchedKind(resource, on_event, is_served, WatchLag(Clock()))


class Kopfs:
    """Replaces kopf: records every start, delivers events or ends on request."""

    def __init__(self):
        self.started = []
        self.resources = []
        self.ends_at_once = False

    async def operate(self, _login, resources, _namespaces, stop, rang):
        self.resources.append({resource.kind for resource in resources})
        self.started.append((stop, rang))
        while not (stop.is_set() or self.ends_at_once):
            await asyncio.to_thread(stop.wait, 0.005)


@pytest.fixture
def kopfs(monkeypatch):
    kopfs = Kopfs()
    monkeypatch.setattr(subject, "_operate", kopfs.operate)
    monkeypatch.setattr(subject, "CHECK_EVERY_S", 0.01)
    monkeypatch.setattr(subject, "LAG_TOLERANCE_S", 0.1)
    return kopfs


async def until(is_so):
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within five seconds")


def short_sleep(sleep):
    async def slept(seconds):
        await sleep(min(seconds, 0.01))

    return slept


async def test_events_arrive_in_the_loop_that_runs_it(kopfs):
    events, threads = [], set()

    def on_event(key, version):
        events.append((key, version))
        threads.add(threading.current_thread())

    running = asyncio.create_task(
        KopfEventSource(KopfLogin("s", None), [new_kind(on_event=on_event)], clock=Clock()).run()
    )
    await until(lambda: kopfs.started)
    stop, rang = kopfs.started[0]
    rang(RAYCLUSTERS, KEY, "5", False)
    await until(lambda: events)
    assert (events, threads) == ([(KEY, "5")], {threading.current_thread()})
    running.cancel()
    await until(stop.is_set)


async def test_a_kopf_that_trails_is_replaced(kopfs):
    kind = new_kind()
    source = KopfEventSource(KopfLogin("s", None), [kind], clock=Clock())
    running = asyncio.create_task(source.run())
    await until(lambda: kopfs.started)
    kind.watch_lag.informer_saw(KEY, "5")
    await until(lambda: len(kopfs.started) == 2)
    assert kopfs.started[0][0].is_set(), "the old one gets its stop flag"
    assert not kopfs.started[1][0].is_set()
    running.cancel()


async def test_a_kopf_that_needs_longer_for_its_first_list_is_given_longer(kopfs, monkeypatch):
    monkeypatch.setattr(subject, "LAG_TOLERANCE_S", 0.02)
    monkeypatch.setattr(asyncio, "sleep", short_sleep(asyncio.sleep))
    kind = new_kind()
    source = KopfEventSource(KopfLogin("s", None), [kind], clock=Clock())
    running = asyncio.create_task(source.run())
    kind.watch_lag.informer_saw(KEY, "5")
    began = []
    for number in (1, 2, 3, 4, 5):
        await until(lambda: len(kopfs.started) == number)  # noqa: B023 - awaited in the same turn
        began.append(asyncio.get_running_loop().time())
    assert began[4] - began[3] > 3 * (began[1] - began[0]) / 2
    running.cancel()


@pytest.mark.looptime
async def test_consecutive_logins_are_delayed_exponentially():
    rest, loop = LoginBackoff(), asyncio.get_running_loop()
    moments = []
    for _ in range(9):
        await rest.before_next()
        moments.append(virtual_time.elapsed_s())
    waits = [round(later - earlier) for earlier, later in itertools.pairwise(moments)]
    assert moments[0] == 0
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    await asyncio.sleep(301)
    before = loop.time()
    await rest.before_next()
    assert loop.time() == before


async def test_a_kopf_that_ends_by_itself_is_replaced(kopfs):
    kopfs.ends_at_once = True
    running = asyncio.create_task(KopfEventSource(KopfLogin("s", None), [new_kind()], clock=Clock()).run())
    await until(lambda: len(kopfs.started) == 2)
    running.cancel()


@pytest.mark.rule("D1")
def test_kopf_writes_nothing():
    settings = read_only_kopf_settings()
    assert isinstance(settings.persistence.diffbase_storage, NullDiffBase)
    assert isinstance(settings.persistence.progress_storage, NullProgress)
    assert not settings.posting.enabled
    assert settings.peering.standalone
    assert NullDiffBase().build(body={}) == {}
    assert NullDiffBase().fetch(body={}) is None
    assert NullProgress().clear(essence={"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/apis/ray.io/v1/rayclusters?watch=true", "as=PartialObjectMetadata;"),
        ("/apis/ray.io/v1/rayclusters", "as=PartialObjectMetadataList;"),
        ("/apis/paddlepaddle.org/v1/namespaces/a/trainingjobs", "as=PartialObjectMetadataList;"),
        ("/apis/ray.io/v1", None),
    ],
)
async def test_kopf_requests_metadata_only(path, form):
    headers = CIMultiDict()
    params = aiohttp.TraceRequestStartParams("GET", URL(f"http://x{path}"), headers)
    (hook,) = metadata_only([RAYCLUSTERS, TRAININGJOBS]).on_request_start
    await hook(None, None, params)
    assert (form in headers["Accept"]) if form else ("Accept" not in headers)


@pytest.mark.parametrize(
    ("body", "read"),
    [
        pytest.param('{"kind": "L", "items": null}', {"kind": "L", "items": []}, id="an empty list of metadata"),
        pytest.param('{"items": [1]}', {"items": [1]}, id="a list"),
        pytest.param('{"kind": "Pod"}', {"kind": "Pod"}, id="no list"),
    ],
)
async def test_kopf_reads_lists_as_lists(body, read):
    async def answer(_):
        return web.Response(text=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/", answer)
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession(response_class=NoNullItems) as session,
        session.get(server.make_url("/")) as response,
    ):
        assert await response.json() == read


async def test_kopf_does_not_read_the_name_of_the_unix_user(monkeypatch):
    """A container that runs as 65532 has no such user."""

    def no_user():
        raise KeyError("getpwuid(): uid not found: 65532")

    asked = asyncio.Event()
    stop = threading.Event()

    async def open_session(**_):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(getpass, "getuser", no_user)
    login = KopfLogin("https://127.0.0.1:1", open_session)
    kopfs = asyncio.create_task(subject._operate(login, {RAYCLUSTERS}, (), stop, lambda *_: None))
    asking = asyncio.create_task(asked.wait())
    await asyncio.wait({kopfs, asking}, timeout=10 * PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    is_asked = asked.is_set()
    stop.set()
    kopfs.cancel()
    asking.cancel()
    await asyncio.gather(kopfs, asking, return_exceptions=True)
    assert is_asked


class Served:
    """What informers know about two kinds."""

    def __init__(self, **known):
        self.known = {"RayCluster": None, "TrainingJob": None} | known

    def kinds(self):
        return [
            new_kind(resource, is_served=lambda kind=resource.kind: self.known[kind])
            for resource in (RAYCLUSTERS, TRAININGJOBS)
        ]


@pytest.mark.rule("D1")
@pytest.mark.parametrize(
    ("before", "after", "watched"),
    [
        pytest.param(
            {}, {"RayCluster": True, "TrainingJob": True}, {"RayCluster", "TrainingJob"}, id="both are served"
        ),
        pytest.param({"RayCluster": True}, {"TrainingJob": False}, {"RayCluster"}, id="one is not, and that is known"),
        pytest.param(
            {"RayCluster": False, "TrainingJob": False}, {"TrainingJob": True}, {"TrainingJob"}, id="the other"
        ),
    ],
)
async def test_kopf_is_started_when_it_is_known_which_kinds_are_served_and_one_is(
    kopfs, monkeypatch, before, after, watched
):
    monkeypatch.setattr(subject, "LAG_TOLERANCE_S", 60.0)
    served = Served(**before)
    running = asyncio.create_task(KopfEventSource(KopfLogin("s", None), served.kinds(), clock=Clock()).run())
    await asyncio.sleep(0.15)
    assert kopfs.started == []
    served.known |= after
    await until(lambda: kopfs.started)
    assert kopfs.resources == [watched]
    running.cancel()


async def test_a_kind_of_which_nothing_is_known_is_not_waited_for_longer_than_kopf_may_trail(kopfs):
    served = Served(RayCluster=True)
    running = asyncio.create_task(KopfEventSource(KopfLogin("s", None), served.kinds(), clock=Clock()).run())
    await until(lambda: kopfs.started)
    assert kopfs.resources == [{"RayCluster"}]
    running.cancel()


@pytest.mark.parametrize(
    ("first", "change", "then"),
    [
        pytest.param({"RayCluster"}, {"TrainingJob": True}, {"RayCluster", "TrainingJob"}, id="another kind appears"),
        pytest.param({"RayCluster", "TrainingJob"}, {"TrainingJob": False}, {"RayCluster"}, id="a kind is removed"),
    ],
)
async def test_kopf_is_restarted_at_once_when_the_served_kinds_change(kopfs, caplog, first, change, then):
    served = Served(**{kind: kind in first for kind in ("RayCluster", "TrainingJob")})
    running = asyncio.create_task(KopfEventSource(KopfLogin("s", None), served.kinds(), clock=Clock()).run())
    await until(lambda: kopfs.started)
    served.known |= change
    await until(lambda: len(kopfs.started) == 2)
    assert kopfs.resources == [first, then]
    assert kopfs.started[0][0].is_set(), "the old one gets its stop flag"
    assert [record for record in caplog.records if record.levelname == "WARNING"] == [], "nothing is wrong"
    running.cancel()


async def test_each_kind_has_its_own_lag(kopfs):
    kinds = [new_kind(), new_kind(TRAININGJOBS)]
    running = asyncio.create_task(KopfEventSource(KopfLogin("s", None), kinds, clock=Clock()).run())
    await until(lambda: kopfs.started)
    for kind in kinds:
        kind.watch_lag.informer_saw(KEY, "5")
    kopfs.started[0][1](TRAININGJOBS, KEY, "5", False)
    await until(lambda: not kinds[1].watch_lag.has_pending_versions)
    assert kinds[0].watch_lag.has_pending_versions, "an object of another kind with the same name does not count"
    running.cancel()


@pytest.mark.rule("D11")
async def test_kopf_threads_that_do_not_end_become_an_error(kopfs, monkeypatch):
    released = threading.Event()

    async def operate(_login, _resources, _namespaces, stop, rang):
        kopfs.started.append((stop, rang))
        await asyncio.to_thread(released.wait)

    monkeypatch.setattr(subject, "_operate", operate)
    monkeypatch.setattr(subject, "ENDS_IN_S", 0.02)
    monkeypatch.setattr(subject, "LAG_TOLERANCE_S", 0.02)
    monkeypatch.setattr(asyncio, "sleep", short_sleep(asyncio.sleep))
    kind = new_kind()
    source = KopfEventSource(KopfLogin("s", None), [kind], clock=Clock())
    running = asyncio.create_task(source.run())
    kind.watch_lag.informer_saw(KEY, "5")
    try:
        with pytest.raises(RuntimeError, match="3 kopf threads did not stop"):
            await asyncio.wait_for(running, 10 * PATIENCE)
    finally:
        released.set()
    assert len(kopfs.started) == 3


def test_log_records_of_kopf_become_debug_records_of_raytide(caplog):
    kopfs_logger = logging.getLogger("kopf")
    before = (kopfs_logger.handlers[:], kopfs_logger.propagate, kopfs_logger.level)
    try:
        redirect_kopf_logs()
        caplog.set_level(logging.DEBUG, "raytide.manager.kopf_source")
        logging.getLogger("kopf._core.reactor").error("Request attempt failed: %s", "away")
    finally:
        kopfs_logger.handlers[:], kopfs_logger.propagate = before[:2]
        kopfs_logger.setLevel(before[2])
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("DEBUG", "kopf (error): Request attempt failed: away")


def test_kopf_comes_without_the_client_library():
    """It would cost 20 MiB and a fifth of the start; what needs it later still finds it."""
    words = "import raytide.manager.main, sys; print('kubernetes' in sys.modules); import kubernetes"
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=60 * PATIENCE
    )
    assert done.stdout == "False\n"

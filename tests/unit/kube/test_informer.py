"""One test per bullet of `Informer`'s and `Reflector`'s contracts, and one per way a watch can fail, in virtual time."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import msgspec
import pytest

from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import PODS, Key
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.reflector import FORBIDDEN_S, SILENCE_S
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock
from support import virtual_time
from unit.kube.scripted import HANG, ScriptedTransport, answer, line, status_error

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D3")]


class View(msgspec.Struct, frozen=True):
    """What these tests keep of an object."""

    name: str
    cluster: str
    version: str


def decode(raw: msgspec.Raw) -> View:
    metadata = msgspec.json.decode(raw)["metadata"]
    return View(metadata["name"], metadata["labels"]["cluster"], metadata["resourceVersion"])


def pod(name: str, version: int, cluster: str = "c", namespace: str = "ns") -> dict:
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "resourceVersion": str(version),
            "labels": {"cluster": cluster},
        }
    }


def listed(*pods: dict, version: int, more: str = ""):
    return answer({"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(pods)})


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


class Env:
    def __init__(self, *, silence_s: float = SILENCE_S, forbidden_s: float = FORBIDDEN_S, **options) -> None:
        self.wire = ScriptedTransport()
        self.changes: list[str] = []
        client = Client(self.wire, clock=Clock())
        self.informer = Informer(
            SharedWatches(client, clock=Clock(), silence_s=silence_s, forbidden_s=forbidden_s),
            PODS,
            decoder=decode,
            index=lambda view: Key("ns", view.cluster),
            on_change=self.note,
            **options,
        )

    def note(self, old: View | None, new: View | None) -> None:
        name = (new or old).name
        sign = "+" if old is None else "-" if new is None else "~"
        shown = self.informer.get("ns", name)
        assert shown == new, "the store must be changed before the change is told"
        self.changes.append(sign + name)

    @property
    def names(self) -> list[str]:
        return sorted(view.name for view in self.informer.all())

    @property
    def resumed_from(self) -> list[str]:
        return [watch.query["resourceVersion"] for watch in self.wire.watches]


@contextlib.asynccontextmanager
async def running(env: Env) -> AsyncIterator[Env]:
    task = asyncio.create_task(env.informer.run())
    try:
        yield env
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settled(seconds: float = 1.0) -> None:
    await asyncio.sleep(seconds)


# --- a good day ----------------------------------------------------------------------------------------------------------


async def test_it_lists_in_pages_and_watches_from_there():
    env = Env(label_selector="a=b", field_selector="c!=d")
    env.wire.answers += [listed(pod("a", 1), version=5, more="x"), listed(pod("b", 2), version=5)]
    assert not env.informer.is_synced
    assert env.informer.version_in("ns") == 0
    async with running(env):
        await asyncio.wait_for(env.informer.wait_synced(), 1)
        await settled()
        assert env.informer.is_synced
        assert env.names == ["a", "b"]
        (watch,) = env.wire.watches
        assert watch.query == {
            "watch": "1",
            "labelSelector": "a=b",
            "fieldSelector": "c!=d",
            "resourceVersion": "5",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "55",
        }
        assert watch.timeout_s == 60
        assert env.wire.calls[0].query == {"limit": "500", "labelSelector": "a=b", "fieldSelector": "c!=d"}
        assert env.informer.version_in("ns") == env.informer.version == 5


async def test_changes_are_reported_once_and_shown():
    env = Env()
    env.wire.answers.append(listed(pod("a", 1), version=5))
    changes = line("ADDED", pod("b", 6)) + line("MODIFIED", pod("a", 7)) + line("DELETED", pod("b", 8))
    env.wire.streams.append([changes, HANG])
    async with running(env):
        await settled()
    assert env.changes == ["+a", "+b", "~a", "-b"]
    assert env.names == ["a"]
    assert env.informer.get("ns", "a") == View("a", "c", "7")
    assert env.informer.get("ns", "b") is None
    assert len(env.informer) == 1
    assert env.informer.version == 8


async def test_a_line_may_come_in_pieces():
    env = Env()
    env.wire.answers.append(listed(version=5))
    whole = line("ADDED", pod("a", 6)) + line("ADDED", pod("b", 7))
    env.wire.streams.append([whole[:17], whole[17:150], 0.1, whole[150:], HANG])
    async with running(env):
        await settled()
        assert env.names == ["a", "b"]


async def test_views_are_found_by_index_and_move_with_it():
    env = Env()
    env.wire.answers.append(listed(pod("a", 1), pod("b", 2, "d"), pod("e", 3), version=5))
    env.wire.streams.append([1, line("MODIFIED", pod("e", 6, "d")), line("DELETED", pod("a", 7)), HANG])
    async with running(env):
        await settled(0.5)
        assert [view.name for view in env.informer.by_index(Key("ns", "c"))] == ["a", "e"]
        await settled()
        assert env.informer.by_index(Key("ns", "c")) == ()
        assert [view.name for view in env.informer.by_index(Key("ns", "d"))] == ["b", "e"]
        assert list(env.informer._store.by_index) == [Key("ns", "d")]


async def test_bookmarks_move_the_version_and_call_no_handler():
    env = Env()
    env.wire.answers.append(listed(version=5))
    env.wire.streams += [[bookmark(90), 20], [HANG]]
    async with running(env):
        await settled(21)
    assert env.changes == []
    assert env.resumed_from == ["5", "90"]
    assert env.informer.version == 90


async def test_the_age_is_the_time_since_the_last_watch_event():
    env = Env()
    env.wire.answers.append(listed(version=5))
    env.wire.streams.append([20, bookmark(6), HANG])
    async with running(env):
        await settled(15)
        assert env.informer.age_s == pytest.approx(15)
        await settled(10)
        assert env.informer.age_s == pytest.approx(5)


async def test_each_namespace_has_a_list_and_a_watch_of_its_own():
    env = Env(namespaces=("ns", "other"))
    env.wire.answers += [listed(pod("a", 1), version=5), listed(version=9)]
    async with running(env):
        await asyncio.wait_for(env.informer.wait_synced(), 1)
        await settled()
        assert [call.path for call in env.wire.calls] == [
            "/api/v1/namespaces/ns/pods",
            "/api/v1/namespaces/other/pods",
        ]
        assert [env.informer.version_in(name) for name in ("ns", "other", "third")] == [5, 9, 0]
        assert env.informer.version == 5
        assert len(env.wire.watches) == 2


async def test_an_object_that_cannot_be_read_is_left_out_and_stops_no_other(caplog):
    env = Env()
    broken = {"metadata": {"namespace": "ns", "name": "x", "resourceVersion": "2"}}
    env.wire.answers.append(listed(pod("a", 1), broken, version=5))
    env.wire.streams.append([line("ADDED", broken | {"spec": 1}), line("ADDED", pod("b", 7)), HANG])
    async with running(env):
        await settled()
    assert env.names == ["a", "b"]
    assert "Pod ns/x cannot be decoded" in caplog.text
    assert env.informer.lists == 1


# --- a bad day -----------------------------------------------------------------------------------------------------------


async def test_a_closed_stream_is_resumed_at_once():
    env = Env()
    env.wire.answers.append(listed(version=5))
    env.wire.streams += [[30, line("ADDED", pod("a", 6)), 25], [line("ADDED", pod("b", 7)), HANG]]
    async with running(env):
        await settled(55.01)
        assert env.names == ["a", "b"]
    assert env.resumed_from == ["5", "6"]
    assert env.informer.lists == 1


async def test_an_idle_cluster_is_never_listed_again():
    env = Env()
    env.wire.answers.append(listed(version=5))
    env.wire.streams += [[53, bookmark(5), 2] for _ in range(100)]
    async with running(env):
        await settled(3600)
        assert env.informer.lists == 1
        assert env.informer.age_s <= 55


@pytest.mark.rule("FD:REL-C", "RM:F10")
async def test_a_stream_that_ended_without_events_reads_the_version_and_resumes():
    env = Env()
    env.wire.answers += [listed(version=5)] * 3
    env.wire.streams += [[55], [55], [HANG]]
    async with running(env):
        await settled(200)
    assert env.informer.lists == 1
    assert [call.query["limit"] for call in env.wire.of("GET") if "limit" in call.query] == ["500", "1", "1"]


@pytest.mark.rule("FD:REL-C", "RM:F10")
async def test_a_server_whose_resource_version_went_back_is_relisted():
    env = Env()
    env.wire.answers += [listed(version=50), listed(version=7), listed(pod("a", 7), version=7)]
    env.wire.streams += [[55], [HANG]]
    async with running(env):
        await settled(60)
        assert env.informer.lists == 2
        assert env.names == ["a"]
        assert env.informer.version == 7


async def test_a_cut_stream_is_resumed():
    env = Env()
    env.wire.answers.append(listed(version=5))
    reset = ApiUnavailableError("connection reset")
    env.wire.streams += [[line("ADDED", pod("a", 6)), reset], [line("ADDED", pod("b", 7)), HANG]]
    async with running(env):
        await settled(0.3)
        assert env.names == ["a", "b"]
    assert env.resumed_from == ["5", "6"]
    assert env.informer.lists == 1


async def test_a_half_line_before_a_cut_is_not_used():
    env = Env()
    env.wire.answers.append(listed(version=5))
    whole = line("ADDED", pod("a", 6))
    env.wire.streams += [[whole[:40], ApiUnavailableError("reset")], [whole, HANG]]
    async with running(env):
        await settled()
    assert env.changes == ["+a"]
    assert env.informer.lists == 1


async def test_a_stream_without_data_for_a_minute_is_reopened():
    env = Env()
    env.wire.answers.append(listed(version=5))
    env.wire.streams += [[line("ADDED", pod("a", 6)), HANG], [line("ADDED", pod("b", 7)), HANG]]
    async with running(env):
        await settled(59)
        assert env.names == ["a"]
        await settled(2)
        assert env.names == ["a", "b"]
    assert env.resumed_from[:2] == ["5", "6"]


async def test_a_duplicate_event_is_reported_once():
    env = Env()
    env.wire.answers.append(listed(pod("a", 1), version=5))
    added, changed, gone = line("ADDED", pod("b", 6)), line("MODIFIED", pod("a", 7)), line("DELETED", pod("b", 8))
    env.wire.streams.append([added, added, changed, changed, added, gone, gone, HANG])
    async with running(env):
        await settled()
    assert env.changes == ["+a", "+b", "~a", "-b"]
    assert env.informer.version == 8


async def test_an_older_event_of_an_object_changes_nothing():
    env = Env()
    env.wire.answers.append(listed(version=5))
    env.wire.streams.append([line("ADDED", pod("a", 9)), line("MODIFIED", pod("a", 8)), HANG])
    async with running(env):
        await settled()
    assert env.informer.get("ns", "a").version == "9"
    assert env.informer.version == 9


async def test_without_bookmarks_it_resumes_from_the_last_event():
    env = Env()
    env.wire.answers.append(listed(version=5))
    env.wire.streams += [[line("ADDED", pod("a", 6)), 55], [HANG]]
    async with running(env):
        await settled(56)
    assert env.resumed_from == ["5", "6"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([line("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})], id="ERROR 410"),
        pytest.param([line("ERROR", {"code": 500, "reason": "InternalError"})], id="ERROR 500"),
        pytest.param([status_error(410, "Expired")], id="410 instead of a stream"),
        pytest.param([b"}garbage{\n"], id="a garbage line"),
        pytest.param([b'{"type":"\xff","object":{}}\n'], id="bytes that are no UTF-8"),
        pytest.param([b'{"type":"ADDED","object":{"no":"metadata"}}\n'], id="an object without metadata"),
        pytest.param([line("SURPRISE", pod("z", 9))], id="an unknown type of event"),
    ],
)
async def test_a_watch_that_cannot_be_resumed_causes_a_relist(script):
    env = Env()
    env.wire.answers += [listed(pod("a", 1), pod("b", 2), version=5), listed(pod("b", 2), pod("d", 8), version=9)]
    env.wire.streams += [script, [HANG]]
    async with running(env):
        await settled()
    assert env.informer.lists == 2
    assert env.changes == ["+a", "+b", "-a", "+d"]
    assert env.resumed_from == ["5", "9"]


@pytest.mark.parametrize(
    "body", [b"}garbage{", b'{"metadata":{"resourceVersion":"\xff"}}', b'{"items":[{"a":1}],"metadata":{}}']
)
async def test_an_invalid_list_is_retried(body):
    env = Env()
    env.wire.answers += [answer(body), listed(pod("a", 1), version=5)]
    async with running(env):
        await settled()
        assert env.names == ["a"]


@pytest.mark.rule("D9")
@pytest.mark.parametrize(
    ("response", "is_activity"),
    [
        pytest.param(status_error(404, "NotFound"), True, id="the kind is not there yet"),
        pytest.param(status_error(403, "Forbidden"), True, id="forbidden"),
        pytest.param(status_error(429, headers={"retry-after": "9"}), True, id="too many requests"),
        pytest.param(ApiUnavailableError("no answer"), False, id="the API server does not respond"),
    ],
)
async def test_a_rejected_list_counts_as_activity_of_the_server(response, is_activity):
    env = Env()
    env.wire.responder = lambda _call: response
    async with running(env):
        await settled(200)
        assert (env.informer.age_s <= 40) is is_activity
        assert not env.informer.is_synced


DEAF = [[HANG] for _ in range(20)]
"""Streams that are never answered."""
MUTE = [[b"", HANG] for _ in range(20)]
"""Streams that are opened and then send nothing."""


@pytest.mark.rule("D9", "SC:S18")
@pytest.mark.parametrize("streams", [DEAF, MUTE], ids=["never answered", "opened, and then silent"])
async def test_lists_do_not_hide_that_the_streams_are_dead(streams):
    env = Env()
    env.wire.responder = lambda _call: listed(pod("a", 1), version=5)
    env.wire.streams += [[20, bookmark(6), HANG], *streams]
    async with running(env):
        await settled(600)
        assert env.informer.lists > 2, "it goes on by lists"
        assert env.informer.age_s > 460
        env.wire.streams.clear()
        env.wire.streams.append([bookmark(7), 55])
        await settled(75)
        assert env.informer.age_s <= 55


@pytest.mark.rule("D9", "SC:S18")
async def test_after_an_outage_an_open_stream_without_events_counts_as_activity():
    env = Env()
    env.wire.responder = lambda _call: listed(version=5)
    env.wire.streams += [
        [20, ApiUnavailableError("reset")],
        *([ApiUnavailableError("refused")] for _ in range(9)),
        [b"", 55],
        [b"", 55],
    ]
    async with running(env):
        await settled(95)
        assert env.informer.age_s <= 56


async def test_watches_without_a_response_are_retried_soon():
    env = Env()
    env.wire.responder = lambda _call: listed(version=5)
    env.wire.streams += [[ApiUnavailableError("no answer to the watch")] for _ in range(40)]
    async with running(env):
        await settled(100)
        begun = len(env.wire.watches)
        await settled(20)
        assert len(env.wire.watches) - begun >= 4


async def test_the_timeout_of_silent_streams_can_be_set():
    env = Env(silence_s=6)
    env.wire.answers.append(listed(version=5))
    env.wire.streams += [[line("ADDED", pod("a", 6)), HANG], [line("ADDED", pod("b", 7)), HANG]]
    async with running(env):
        await settled(7)
        assert env.names == ["a", "b"]
    assert env.wire.watches[0].query["timeoutSeconds"] == "5"


async def test_a_deletion_missed_while_down_is_reported_by_the_new_list():
    env = Env()
    env.wire.answers += [listed(pod("a", 1), pod("b", 2), version=5), listed(pod("b", 2), version=9)]
    env.wire.streams += [[20, ApiUnavailableError("reset")], [status_error(410, "Expired")], [HANG]]
    async with running(env):
        await settled(25)
    assert env.changes == ["+a", "+b", "-a"]
    assert env.informer.by_index(Key("ns", "c")) == (View("b", "c", "2"),)


async def test_a_recreated_object_of_the_same_name_is_a_change():
    env = Env()
    env.wire.answers += [listed(pod("a", 1), version=5), listed(pod("a", 8), version=9)]
    env.wire.streams += [[line("ERROR", {"code": 410})], [HANG]]
    async with running(env):
        await settled()
    assert env.changes == ["+a", "~a"]


async def test_three_resumes_without_data_cause_a_relist():
    env = Env()
    env.wire.answers += [listed(version=5), listed(version=9)]
    env.wire.streams += [[ApiUnavailableError("refused")]] * 3 + [[HANG]]
    async with running(env):
        await settled(10)
    assert env.informer.lists == 2
    assert env.resumed_from == ["5", "5", "5", "9"]


async def test_a_resume_that_receives_data_resets_the_count():
    env = Env()
    env.wire.answers.append(listed(version=5))
    cut = ApiUnavailableError("cut")
    env.wire.streams += [[cut], [cut], [bookmark(6), cut], [cut], [cut], [bookmark(7), HANG]]
    async with running(env):
        await settled(20)
    assert env.informer.lists == 1


async def test_failed_lists_back_off_and_respect_retry_after():
    env = Env()
    env.wire.answers += [status_error(403, "Forbidden")] * 3 + [
        status_error(429, headers={"retry-after": "20"}),
        listed(version=5),
    ]
    times = []
    env.wire.responder = None
    request = env.wire.request

    async def timed(*args, **kwargs):
        times.append(virtual_time.elapsed_s())
        return await request(*args, **kwargs)

    env.wire.request = timed
    async with running(env):
        await settled(60)
        assert env.informer.is_synced
    assert times == pytest.approx([0, 0.2, 0.6, 1.4, 21.4])


@pytest.mark.parametrize(
    ("answers", "warnings"),
    [
        pytest.param([status_error(429, headers={"retry-after": "1"})] * 9, 0, id="a new CRD's storage is set up"),
        pytest.param([status_error(429, headers={"retry-after": "1"})] * 15, 2, id="it takes unusually long"),
        pytest.param([status_error(503, headers={"retry-after": "1"})] * 3, 1, id="the API server is away"),
        pytest.param([status_error(403, "Forbidden")], 1, id="forbidden"),
    ],
)
async def test_an_expected_retry_is_no_warning(caplog, answers, warnings):
    """A list is sent up to three times before it counts as one failure."""
    env = Env()
    env.wire.answers += [*answers, listed(version=5)]
    async with running(env):
        await settled(60)
        assert env.informer.is_synced
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == warnings


AWAY = status_error(503, headers={"retry-after": "120"})
"""Responses of a load balancer while its server is restarted."""


@pytest.mark.rule("FD:REL-E", "D9")
async def test_a_retry_after_of_two_minutes_is_capped_at_thirty_seconds():
    env = Env()
    env.wire.responder = lambda _call: AWAY
    async with running(env):
        for _ in range(600):
            await settled(1)
            assert env.informer.age_s < 75, "the kubelet would restart us"
        assert len(env.wire.calls) <= 21


@pytest.mark.rule("FD:REL-E", "D10")
async def test_refresh_does_not_wait_for_the_retry_after_of_an_earlier_list():
    env = Env()
    env.wire.answers += [AWAY, listed(pod("a", 1), version=5)]
    async with running(env):
        await settled(5)
        await asyncio.wait_for(env.informer.refresh(), 1)
        assert env.names == ["a"]


@pytest.mark.rule("FD:REL-E")
async def test_relist_requests_shorten_the_backoff_to_ten_seconds():
    env = Env()
    env.wire.responder = lambda _call: AWAY
    async with running(env):
        for _ in range(60):
            await settled(1)
            env.informer.relist()
        assert 6 <= len(env.wire.calls) <= 7


@pytest.mark.rule("FD:REL-E")
async def test_cancellation_ends_the_informer_even_during_a_refresh():
    env = Env()
    env.wire.responder = lambda _call: AWAY
    running = asyncio.create_task(env.informer.run())
    await settled(5)
    asking = asyncio.create_task(env.informer.refresh())
    await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=60)
    asking.cancel()
    assert done == {running}


async def test_a_list_that_breaks_half_way_changes_nothing():
    env = Env()
    env.wire.answers += [
        listed(pod("a", 1), version=5),
        listed(pod("x", 7), version=9, more="x"),
        status_error(410, "Expired"),
        listed(pod("b", 8), version=10),
    ]
    env.wire.streams += [[line("ERROR", {"code": 410})], [HANG]]
    async with running(env):
        await settled(2)
    assert env.changes == ["+a", "-a", "+b"]


async def test_a_server_that_breaks_every_watch_is_relisted_with_backoff():
    env = Env()
    env.wire.responder = lambda call: listed(version=5)
    env.wire.streams += [[line("ERROR", {"code": 410})]] * 1000
    async with running(env):
        await settled(600)
    assert 20 <= env.informer.lists <= 30


async def test_ten_seconds_of_an_open_stream_reset_the_backoff():
    env = Env()
    env.wire.answers.append(listed(version=5))
    cut = ApiUnavailableError("cut")
    env.wire.streams += [[bookmark(6), cut]] * 6 + [[bookmark(7), 11, cut], [bookmark(8), HANG]]
    async with running(env):
        await settled(0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 4.0 + 11 + 0.1)
        assert len(env.wire.watches) == 7
        await settled(0.2)
        assert len(env.wire.watches) == 8


async def test_relist_requests_are_combined_and_delayed_after_a_list():
    env = Env()
    env.wire.answers += [listed(pod("a", 1), version=5), listed(version=9)]
    env.wire.streams += [[HANG], [HANG]]
    async with running(env):
        await settled(1)
        for _ in range(5):
            env.informer.relist()
        await settled(8)
        assert env.informer.lists == 1
        await settled(2)
        assert env.informer.lists == 2
        assert env.changes == ["+a", "-a"]
        await settled(20)
        assert env.informer.lists == 2
        assert env.resumed_from == ["5", "9"]


async def test_refresh_waits_for_a_list_that_began_after_it():
    env = Env()
    env.wire.responder = lambda call: listed(version=5)
    env.wire.takes_s = 2
    async with running(env):
        await settled(1)
        await asyncio.wait_for(env.informer.refresh(), 10)
        assert virtual_time.elapsed_s() == pytest.approx(4)
        await env.informer.refresh()
        assert virtual_time.elapsed_s() == pytest.approx(6)


async def test_a_kind_that_is_not_served_has_no_objects_and_is_listed_until_it_is(caplog):
    env = Env()
    gone = status_error(404, "NotFound", "the server could not find the requested resource")
    env.wire.answers += [gone, listed(pod("a", 1), version=5), gone, gone, listed(pod("b", 7), version=8)]
    env.wire.streams += [[ApiUnavailableError("cut")] * 1] * 3
    async with running(env):
        await settled(0.5)
        assert env.informer.error == "waiting for CRD pods"
        assert not env.informer.is_synced
        await settled(1)
        assert (env.names, env.informer.error) == (["a"], "")
        await settled(5)
        assert env.names == ["b"]
    assert env.changes == ["+a", "-a", "+b"]
    assert caplog.text.count("waiting for CRD pods: the API server does not serve this resource") == 2


@pytest.mark.parametrize(
    ("response", "is_listable"),
    [
        pytest.param(ApiUnavailableError("no answer"), None, id="unknown before the first response"),
        pytest.param(status_error(404, "NotFound"), False, id="not there"),
        pytest.param(status_error(403, "Forbidden"), False, id="forbidden"),
        pytest.param(listed(version=5), True, id="there, and empty"),
    ],
)
async def test_whether_the_kind_is_listable(response, is_listable):
    env = Env()
    env.wire.responder = lambda _call: response
    env.wire.streams += [[HANG]]
    async with running(env):
        await settled(0.5)
        assert env.informer.is_listable is is_listable


async def test_of_several_namespaces_one_that_may_be_listed_is_enough():
    env = Env(namespaces=("a", "b"))
    env.wire.responder = lambda call: listed(version=5) if "/a/" in call.path else status_error(403, "Forbidden")
    env.wire.streams += [[HANG]]
    async with running(env):
        await settled(0.5)
        assert env.informer.is_listable is True


@pytest.mark.rule("RM:F14")
@pytest.mark.parametrize(
    ("verb", "back"),
    [
        pytest.param("list", [HANG], id="to list"),
        pytest.param("watch", [bookmark(6), HANG], id="to watch, and the stream brings something"),
        pytest.param("watch", [b"", HANG], id="to watch, and the stream is open and still quiet"),
    ],
)
async def test_a_right_that_was_withdrawn_is_its_error_until_it_is_back(verb, back):
    env = Env()
    no = status_error(403, "Forbidden", f'pods is forbidden: User "u" cannot {verb} resource "pods"')
    if verb == "list":
        env.wire.answers += [no, no, listed(version=5)]
        env.wire.streams += [back]
    else:
        env.wire.answers += [listed(version=5)]
        env.wire.streams += [[no], [no], back]
    async with running(env):
        await settled(0.1)
        assert env.informer.error.startswith(f"cannot {verb} pods: pods is forbidden")
        await settled(2)
        assert env.informer.error == ""


@pytest.mark.rule("SC:S18")
async def test_after_an_outage_the_informer_lists_within_ten_seconds():
    env = Env()
    env.wire.responder = lambda _: ApiUnavailableError("away")
    async with running(env):
        await settled(600)
        env.wire.responder = lambda _: listed(pod("a", 1), version=5)
        await settled(10.1)
        assert env.names == ["a"]


# --- what is optional, and what is narrowed ------------------------------------------------------------------------------


@pytest.mark.rule("FD:AS-A16")
async def test_the_list_that_reads_the_version_has_the_selectors():
    env = Env(label_selector="a=b", field_selector="metadata.name=a")
    env.wire.answers += [listed(version=5)] * 2
    env.wire.streams += [[55], [HANG]]
    async with running(env):
        await settled(60)
    asked = [call.query for call in env.wire.of("GET") if call.query.get("limit") == "1"]
    assert asked == [{"limit": "1", "labelSelector": "a=b", "fieldSelector": "metadata.name=a"}]


@pytest.mark.rule("FD:AS-A16")
async def test_a_forbidden_optional_watch_is_retried_rarely_and_followed_once_it_is_allowed(caplog):
    caplog.set_level(logging.INFO, logger="raytide")
    env = Env(if_forbidden="nothing is followed", forbidden_s=300.0)
    env.wire.answers += [listed(version=5)] * 3
    env.wire.streams += [[status_error(403, "Forbidden")], [status_error(403, "Forbidden")], [b"", HANG]]
    async with running(env):
        await settled(290)
        assert (env.informer.is_synced, env.informer.is_following) == (True, False)
        await settled(290)
        assert len(env.wire.of("GET")) == 2
        await settled(30)
        assert (env.informer.is_following, env.informer.error) == (True, "")
    assert len([r for r in caplog.records if "nothing is followed" in r.message]) == 1


async def test_it_follows_only_while_a_stream_is_open():
    env = Env()
    env.wire.answers.append(listed(version=5))
    env.wire.streams += [[b"", 20, ApiUnavailableError("connection reset")], [5, b"", HANG]]
    async with running(env):
        await settled(10)
        assert env.informer.is_following
        await settled(12)
        assert not env.informer.is_following
        await settled(10)
        assert env.informer.is_following


@pytest.mark.rule("FD:SEC-F1")
def test_a_list_of_large_objects_is_decoded_in_portions_that_let_other_tasks_run():
    turns, read_in = [0], []

    def read(raw: msgspec.Raw) -> View:
        read_in.append(turns[0])
        return decode(raw)

    async def main() -> None:
        wire = ScriptedTransport()
        large = [{**pod(f"large-{n}", n + 1), "spec": "x" * 600_000} for n in range(4)]
        small = [pod(f"small-{n}", n + 10) for n in range(200)]
        wire.answers.append(listed(*large, *small, version=300))
        informer = Informer(SharedWatches(Client(wire, clock=Clock()), clock=Clock()), PODS, decoder=read)
        following = asyncio.ensure_future(informer.run())
        while not informer.is_synced:
            turns[0] += 1
            await asyncio.sleep(0)
        assert len(informer) == 204
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    virtual_time.run(main())
    assert len(set(read_in[:4])) == 4, "each large object in a step of its own"
    assert len(set(read_in[4:])) == 1, "small ones together"

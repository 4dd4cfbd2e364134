"""One test per bullet of `Client`'s contract, in virtual time."""

import contextlib

import pytest

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import NODES, PODS, RAYCLUSTERS, Key
from raytide.kube.client import Client, PatchKind
from raytide.kube.transport import TooLargeError
from raytide.runtime.clock import Clock
from support import virtual_time
from unit.kube.scripted import ScriptedTransport, answer, status_error

pytestmark = pytest.mark.looptime
KEY = Key("ns", "a")


@pytest.fixture
def wire() -> ScriptedTransport:
    return ScriptedTransport()


@pytest.fixture
def client(wire) -> Client:
    return Client(wire, clock=Clock(), version="1.2")


async def test_get_reads_one_object(client, wire):
    wire.answers.append(answer({"metadata": {"name": "a"}}))
    assert await client.get(RAYCLUSTERS, KEY) == {"metadata": {"name": "a"}}
    (call,) = wire.calls
    assert (call.method, call.path) == ("GET", "/apis/ray.io/v1/namespaces/ns/rayclusters/a")
    assert call.headers["user-agent"] == "raytide/1.2"
    assert call.timeout_s == 10


async def test_get_of_what_is_not_there_is_none(client, wire):
    wire.answers.append(status_error(404, "NotFound"))
    assert await client.get(PODS, KEY) is None


async def test_the_log_of_a_container_is_its_bytes(client, wire):
    wire.answers += [
        answer(b"a\n\xff"),
        answer(b""),
        status_error(400, "BadRequest", "container x is waiting to start"),
    ]
    assert await client.pod_log(KEY, "x", tail_lines=5, limit_bytes=100) == b"a\n\xff"
    assert await client.pod_log(KEY, "x", tail_lines=5, limit_bytes=100, is_previous=True) == b""
    with pytest.raises(ApiStatusError, match="is waiting to start"):
        await client.pod_log(KEY, "x", tail_lines=5, limit_bytes=100)
    options = {"container": "x", "tailLines": "5", "limitBytes": "100"}
    assert [(call.method, call.path, call.query) for call in wire.calls[:2]] == [
        ("GET", "/api/v1/namespaces/ns/pods/a/log", options),
        ("GET", "/api/v1/namespaces/ns/pods/a/log", {**options, "previous": "true"}),
    ]


async def test_any_other_4xx_is_an_error_with_the_message_of_the_api_server(client, wire):
    wire.answers.append(
        status_error(403, "Forbidden", "not now", details={"causes": [{"reason": "NamespaceTerminating"}]})
    )
    with pytest.raises(ApiStatusError) as caught:
        await client.create(PODS, {"metadata": {"namespace": "ns", "name": "a"}})
    assert (caught.value.status, caught.value.reason, caught.value.message) == (403, "Forbidden", "not now")
    assert caught.value.is_namespace_terminating


async def test_an_error_response_without_a_status_keeps_the_http_reason_and_body(client, wire):
    wire.answers.append(answer(b"<html>go away</html>", status=405))
    with pytest.raises(ApiStatusError) as caught:
        await client.get(PODS, KEY)
    assert caught.value.reason == "MethodNotAllowed"
    assert "go away" in caught.value.message


async def test_reads_are_retried_after_the_retry_after_of_the_server(client, wire):
    wire.answers += [status_error(429, headers={"retry-after": "2"}), status_error(503), answer({"ok": True})]
    before = virtual_time.elapsed_s()
    assert await client.get(PODS, KEY) == {"ok": True}
    assert virtual_time.elapsed_s() - before == pytest.approx(2 + 0.4)


async def test_reads_give_up_after_three_attempts(client, wire):
    wire.answers += [status_error(503)] * 3
    with pytest.raises(ApiUnavailableError) as caught:
        await client.get(PODS, KEY)
    assert not caught.value.is_outcome_unknown
    assert len(wire.calls) == 3


async def test_a_read_does_not_wait_beyond_its_deadline(client, wire):
    wire.answers.append(status_error(429, headers={"retry-after": "60"}))
    with pytest.raises(ApiUnavailableError) as caught:
        await client.get(PODS, KEY)
    assert caught.value.retry_after_s == 60
    assert virtual_time.elapsed_s() < 1


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [("3", 3.0), ("0", 0.0), ("99999", 300.0), ("-1", None), ("nan", None), ("Fri, 31 Dec 1999 23:59:59 GMT", None)],
)
async def test_only_a_valid_retry_after_counts(client, wire, header, wait_s):
    wire.answers.append(status_error(429, headers={"retry-after": header}))
    with pytest.raises(ApiUnavailableError) as caught:
        await client.create(PODS, {"metadata": {"namespace": "ns", "name": "a"}})
    assert caught.value.retry_after_s == wait_s


@pytest.mark.parametrize(
    ("response", "is_unknown", "retry_after_s"),
    [
        pytest.param(status_error(429, headers={"retry-after": "3"}), False, 3.0, id="429 did not happen"),
        pytest.param(status_error(401), False, None, id="401 did not happen"),
        pytest.param(status_error(500), True, None, id="500 may have happened"),
        pytest.param(status_error(503), True, None, id="503 may have happened"),
        pytest.param(status_error(504), True, None, id="504 may have happened"),
        pytest.param(ApiUnavailableError("cut", is_outcome_unknown=True), True, None, id="a cut keeps its own verdict"),
        pytest.param(answer(b"not json"), True, None, id="a yes that cannot be read"),
    ],
)
async def test_writes_are_sent_once(client, wire, response, is_unknown, retry_after_s):
    wire.answers.append(response)
    with pytest.raises(ApiUnavailableError) as caught:
        await client.create(PODS, {"metadata": {"namespace": "ns", "name": "a"}})
    assert caught.value.is_outcome_unknown is is_unknown
    assert caught.value.retry_after_s == retry_after_s
    assert len(wire.calls) == 1


@pytest.mark.rule("FD:REL-11", "RM:I5")
async def test_a_delete_carries_the_uid_it_means_and_lets_garbage_collection_delete_dependents(client, wire):
    wire.answers.append(answer({"metadata": {"uid": "u"}}))
    await client.delete(PODS, KEY, "u", grace_period_s=5)
    (call,) = wire.calls
    assert call.method == "DELETE"
    assert call.json["preconditions"] == {"uid": "u"}
    assert call.json["propagationPolicy"] == "Background"
    assert call.json["gracePeriodSeconds"] == 5


@pytest.mark.parametrize("kind", list(PatchKind), ids=lambda kind: kind.name.lower())
async def test_all_four_kinds_of_patch(client, wire, kind):
    wire.answers.append(answer({}))
    await client.patch(PODS, KEY, {"a": 1}, kind=kind, is_forced=kind is PatchKind.APPLY)
    (call,) = wire.calls
    assert call.headers["content-type"] == kind.value
    assert call.query["fieldManager"] == "raytide"
    assert call.query.get("force") == ("true" if kind is PatchKind.APPLY else None)


async def test_a_status_patch_is_sent_to_the_subresource(client, wire):
    wire.answers.append(answer({}))
    await client.patch_status(RAYCLUSTERS, KEY, {"status": {}})
    assert wire.calls[0].path.endswith("/rayclusters/a/status")


async def test_a_list_is_read_page_by_page(client, wire):
    wire.answers += [
        answer({"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [{"n": 1}]}),
        answer({"metadata": {"resourceVersion": "7"}, "items": [{"n": 2}]}),
    ]
    assert [item["n"] async for item in client.list(NODES, label_selector="a=b")] == [1, 2]
    first, second = wire.calls
    assert first.query == {"limit": "500", "labelSelector": "a=b"}
    assert second.query["continue"] == "more"


@pytest.mark.rule("FD:SEC-F1")
async def test_pages_become_smaller_while_objects_are_large_and_larger_again(client, wire):
    def page(more, size=0):
        return answer({"metadata": {"resourceVersion": "7", "continue": more}, "items": [{"n": more, "x": "x" * size}]})

    large = TooLargeError("large", is_answer=True)
    wire.answers += [large, large, large, page("a", 5 << 20), page("b", 5 << 20), page("c"), page("d"), page("")]
    assert [item["n"] async for item in client.list(NODES)] == ["a", "b", "c", "d", ""]
    assert [call.query["limit"] for call in wire.calls] == ["500", "125", "31", "7", "7", "7", "14", "28"]
    assert [call.query.get("continue") for call in wire.calls] == [None] * 4 + ["a", "b", "c", "d"]


@pytest.mark.rule("FD:SEC-F1")
async def test_a_single_object_that_is_too_large_is_reported(client, wire):
    wire.answers += [TooLargeError("the response is larger than 16 MiB", is_answer=True)] * 6
    with pytest.raises(TooLargeError):
        [item async for item in client.list(NODES)]
    assert [call.query["limit"] for call in wire.calls] == ["500", "125", "31", "7", "1"]


async def test_an_expired_list_is_an_error_410(client, wire):
    wire.answers += [
        answer({"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [{"n": 1}]}),
        status_error(410, "Expired"),
    ]
    with pytest.raises(ApiStatusError) as caught:
        [item async for item in client.list(PODS, "ns")]
    assert caught.value.status == 410


@pytest.mark.rule("D10")
async def test_the_gate_shortens_writes_and_stops_them(wire):
    granted = [3.0, 0.0]
    client = Client(wire, clock=Clock(), write_gate=lambda: granted.pop(0))
    wire.answers += [answer({}), answer({})]
    await client.patch(PODS, KEY, {})
    assert wire.calls[0].timeout_s == 3
    assert wire.calls[0].query["timeout"] == "3.000s"
    with pytest.raises(ApiUnavailableError) as caught:
        await client.delete(PODS, KEY, "u")
    assert not caught.value.is_outcome_unknown
    assert len(wire.calls) == 1


@pytest.mark.rule("FD:REL-D")
@pytest.mark.parametrize(
    ("reply", "unanswered_s"),
    [
        pytest.param(answer({}), 0, id="done"),
        pytest.param(status_error(403, "Forbidden", "no"), 0, id="refused"),
        pytest.param(status_error(429), 0, id="too many requests"),
        pytest.param(status_error(504), 10, id="the server gave up waiting"),
        pytest.param(ApiUnavailableError("reset", is_outcome_unknown=True), 10, id="lost with an unknown outcome"),
        pytest.param(ApiUnavailableError("no connection"), 0, id="never sent"),
    ],
)
async def test_a_write_without_an_answer_is_remembered_until_the_server_must_have_dropped_it(
    client, wire, reply, unanswered_s
):
    wire.answers.append(reply)
    with contextlib.suppress(ApiStatusError, ApiUnavailableError):
        await client.create(PODS, {"metadata": {"namespace": "ns", "name": "a"}})
    assert client.unanswered_s() == pytest.approx(unanswered_s, abs=0.1)


async def test_the_gate_does_not_touch_reads(wire):
    client = Client(wire, clock=Clock(), write_gate=lambda: 0.0)
    wire.answers.append(answer({}))
    assert await client.get(PODS, KEY) == {}

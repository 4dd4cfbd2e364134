"""Matching of calls and lines with scripted faults."""

import msgspec
import pytest

from raytide_sandbox.apiserver.request_response import Response
from support.faults.script import Line, Rule, Script, seen_call, seen_line
from support.faults.types import (
    FORBIDDEN,
    UNAUTHORIZED,
    Answer,
    Cut,
    Drop,
    Error,
    LoseAnswer,
    Reset,
    ResponseHistory,
    Stale,
    answer,
    error_line,
)

PODS = "/api/v1/namespaces/default/pods"
STATUS = "/apis/ray.io/v1/namespaces/default/rayclusters/demo/status"


def new_script(now_s: list[float] | None = None) -> Script:
    clock = now_s or [0.0]
    return Script(now_s=lambda: clock[0])


def test_the_third_call_alone_meets_its_fault() -> None:
    script = new_script()
    script.of_calls = [Rule(Reset(), lambda call: call.number == 2)]
    assert [script.call("GET", PODS, {}) for _ in range(4)] == [None, None, Reset(), None]


def test_rules_skip_and_count_what_they_match() -> None:
    script = new_script()
    script.of_calls = [Rule(LoseAnswer(), lambda call: call.is_write, skip=1, times=2)]
    methods = ["POST", "GET", "POST", "GET", "DELETE", "POST"]
    assert [script.call(method, PODS, {}) for method in methods] == [None, None, LoseAnswer(), None, LoseAnswer(), None]


def test_a_right_is_withdrawn_for_a_while_and_given_back() -> None:
    now_s = [0.0]
    script = new_script(now_s)
    script.of_calls = [Rule(FORBIDDEN, times=None, from_s=5.0, until_s=10.0)]
    answers = []
    for now_s[0] in (4.9, 5.0, 9.9, 10.0):
        answers.append(script.call("GET", PODS, {}))
    assert answers == [None, FORBIDDEN, FORBIDDEN, None]
    assert script.last_met_s == 9.9


def test_the_first_matching_rule_applies() -> None:
    script = new_script()
    script.of_calls = [Rule(Reset()), Rule(LoseAnswer())]
    assert [script.call("GET", PODS, {}) for _ in range(3)] == [Reset(), LoseAnswer(), None]


def test_bookmarks_are_not_numbered_but_can_be_lost() -> None:
    script = new_script()
    script.of_lines = [Rule(Drop(is_silent=True), lambda line: line.type == "BOOKMARK", times=None)]
    script.is_recording = True
    bookmark, pod = watch_line("BOOKMARK", ""), watch_line("ADDED", "a")
    met = [script.line("pods", line) for line in (pod, bookmark, pod)]
    assert met == [None, Drop(is_silent=True), None]
    assert script.lines == [Line(0, "pods", "ADDED", "default", "a"), Line(1, "pods", "ADDED", "default", "a")]


def test_what_was_met_is_reported_and_clear_ends_it() -> None:
    script = new_script()
    script.of_lines = [Rule(Cut(), times=None)]
    script.line("pods", watch_line("DELETED", "a"))
    script.clear()
    assert script.line("pods", watch_line("DELETED", "a")) is None
    assert script.met == ["Cut() at DELETED pods a"]


def test_a_recording_keeps_every_call() -> None:
    script = new_script()
    script.is_recording = True
    script.call("PATCH", STATUS, {})
    script.call("GET", PODS, {"watch": "1"}, is_watch=True)
    assert [str(call) for call in script.calls] == [f"PATCH {STATUS}", f"WATCH {PODS}"]


def test_the_call_count_can_be_reset() -> None:
    script = new_script()
    script.of_calls = [Rule(Reset(), lambda call: call.number == 1)]
    script.call("GET", PODS, {})
    script.recount()
    assert [script.call("GET", PODS, {}) for _ in range(3)] == [None, Reset(), None]


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        pytest.param("GET", PODS, ("pods", "", "", False, True), id="a list"),
        pytest.param("GET", f"{PODS}/a", ("pods", "a", "", False, False), id="a get"),
        pytest.param("PATCH", STATUS, ("rayclusters", "demo", "status", True, False), id="a write of a subresource"),
        pytest.param("GET", "/version", ("", "", "", False, True), id="no resource"),
    ],
)
def test_a_call_is_taken_apart(method: str, path: str, expected: tuple[object, ...]) -> None:
    call = seen_call(0, method, path, {})
    assert (call.plural, call.name, call.subresource, call.is_write, call.is_list) == expected


def test_a_line_that_cannot_be_read_is_an_error_without_a_name() -> None:
    assert seen_line(3, "pods", b"\xff\xfe\n") == Line(3, "pods", "ERROR", "", "")


@pytest.mark.parametrize(
    ("fault", "reason", "retry_after"),
    [
        (Answer(409), "Conflict", None),
        (Answer(422), "Invalid", None),
        (Answer(429, retry_after_s=3), "TooManyRequests", "3"),
        (Answer(500), "InternalError", None),
        (Answer(503, retry_after_s=1), "ServiceUnavailable", "1"),
        (Answer(504), "Timeout", None),
        (Answer(409, reason="AlreadyExists"), "AlreadyExists", None),
        (FORBIDDEN, "Forbidden", None),
        (UNAUTHORIZED, "Unauthorized", None),
    ],
    ids=str,
)
def test_an_answer_is_a_status_object(fault: Answer, reason: str, retry_after: str | None) -> None:
    response = answer(fault)
    body = msgspec.json.decode(response.body)
    assert (response.status, body["kind"], body["code"], body["reason"]) == (
        fault.status,
        "Status",
        fault.status,
        reason,
    )
    assert response.headers.get("retry-after") == retry_after


def test_an_error_comes_inside_the_stream() -> None:
    event = msgspec.json.decode(error_line(410))
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert error_line(500).endswith(b"\n")
    assert Error().code == 410


class TestMemory:
    """A lagging server returns earlier responses."""

    @staticmethod
    def remembering(*bodies: bytes) -> ResponseHistory:
        memory = ResponseHistory()
        for at_s, body in enumerate(bodies):
            memory.note(PODS, {"limit": "500"}, Response(200, body), float(at_s))
        return memory

    @pytest.mark.parametrize(
        ("fault", "body"),
        [
            pytest.param(Stale(lag_s=0.0), b"d", id="no lag is now"),
            pytest.param(Stale(lag_s=1.5), b"b", id="a second and a half ago"),
            pytest.param(Stale(lag_s=30.0), b"a", id="longer ago than anything known: the oldest"),
            pytest.param(Stale(lag_changes=1), b"c", id="one change ago"),
            pytest.param(Stale(lag_changes=9), b"a", id="more changes than are known: the oldest"),
            pytest.param(Stale(lag_s=2.0, lag_changes=1), b"b", id="both"),
        ],
    )
    def test_stale_reads_return_an_earlier_response(self, fault: Stale, body: bytes) -> None:
        old = self.remembering(b"a", b"b", b"c", b"d").recall(PODS, {"limit": "500"}, fault, now_s=3.0)
        assert old is not None
        assert old.body == body

    def test_equal_answers_are_one(self) -> None:
        old = self.remembering(b"a", b"b", b"b").recall(PODS, {"limit": "500"}, Stale(lag_changes=1), now_s=3.0)
        assert old is not None
        assert old.body == b"a"

    def test_recall_returns_nothing_for_unread_or_rejected_paths(self) -> None:
        memory = self.remembering(b"a")
        memory.note(STATUS, {}, Response(404, b"gone"), 0.0)
        assert memory.recall(STATUS, {}, Stale(), now_s=1.0) is None
        assert memory.recall(PODS, {"limit": "1"}, Stale(), now_s=1.0) is None


def watch_line(kind: str, name: str) -> bytes:
    return msgspec.json.encode({"type": kind, "object": {"metadata": {"name": name, "namespace": "default"}}}) + b"\n"

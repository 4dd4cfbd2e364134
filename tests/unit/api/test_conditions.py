"""metav1 semantics of condition lists."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from raytide.api.conditions import (
    MAX_MESSAGE_BYTES,
    find_condition,
    is_condition_true,
    parse_timestamp,
    remove_condition,
    set_condition,
    timestamp,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def ready(conditions, status, now, message=""):
    return set_condition(conditions, "Ready", status=status, reason="R", message=message, now=now)


@pytest.mark.rule("RC:K-6")
@pytest.mark.parametrize(
    ("second", "moved"),
    [
        pytest.param(True, False, id="the same status keeps the time"),
        pytest.param(False, True, id="another status moves it"),
        pytest.param("Unknown", True, id="Unknown is another status"),
    ],
)
def test_last_transition_time(second, moved):
    conditions = ready(ready((), True, NOW), second, LATER, "other words")
    (found,) = conditions
    assert found["lastTransitionTime"] == timestamp(LATER if moved else NOW)
    assert found["message"] == "other words"


def test_a_condition_keeps_its_place_and_others_stay():
    conditions = ({"type": "A"}, {"type": "Ready", "status": "False"}, {"type": "B"})
    assert [c["type"] for c in ready(conditions, True, NOW)] == ["A", "Ready", "B"]
    assert [c["type"] for c in remove_condition(conditions, "Ready")] == ["A", "B"]


def test_conditions_are_not_changed_in_place():
    old = {"type": "Ready", "status": "False"}
    ready((old,), True, NOW)
    assert old == {"type": "Ready", "status": "False"}


def test_unknown_fields_of_a_condition_are_kept():
    (found,) = ready(({"type": "Ready", "status": "True", "observedGeneration": 3},), True, NOW)
    assert found["observedGeneration"] == 3


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((), False),
        (({"type": "Ready", "status": "False"},), False),
        (({"type": "Ready", "status": "True"},), True),
        (({"type": "Other", "status": "True"},), False),
    ],
)
def test_is_true(conditions, expected):
    assert is_condition_true(conditions, "Ready") is expected
    assert (find_condition(conditions, "Ready") is None) is all(c["type"] != "Ready" for c in conditions)


def test_a_message_too_long_for_the_api_is_cut_between_characters():
    (found,) = ready((), True, NOW, "ä" * MAX_MESSAGE_BYTES)
    assert len(found["message"].encode()) <= MAX_MESSAGE_BYTES
    assert found["message"].endswith("ä…")


@pytest.mark.rule("FD:SEC3-7")
@pytest.mark.parametrize("repeated", [1, MAX_MESSAGE_BYTES])
def test_a_message_is_one_line_of_bounded_length_whatever_a_tenant_wrote(repeated):
    (found,) = ready((), True, NOW, "group \x1b[31mcpu\u202e\nforged\u2028" * repeated + "\ud800")
    assert found["message"].startswith(r"group \x1b[31mcpu\u202e\nforged\u2028")
    assert found["message"].isprintable()
    assert len(found["message"].encode()) <= MAX_MESSAGE_BYTES
    assert ready((found,), True, LATER, found["message"]) == (found,)


def test_timestamps_are_utc_in_whole_seconds():
    moment = datetime(2026, 1, 1, 13, 0, 0, 999999, tzinfo=timezone(timedelta(hours=1)))
    assert timestamp(moment) == "2026-01-01T12:00:00Z"
    assert parse_timestamp("2026-01-01T12:00:00Z") == NOW
    assert parse_timestamp("2026-01-01T12:00:00") == NOW
    assert parse_timestamp("soon") is None

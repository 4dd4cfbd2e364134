"""Events for conditions that say why a RayCluster has fewer workers than it wants."""

import pytest

from raytide.api import constants
from raytide.api.actions import EventSpec
from raytide.diagnosis import render
from raytide.raycluster import messages
from raytide.raycluster.conditions import condition_events


def missing(reason, message="group cpu: 3 of 5 workers not ready", status="True", kind=constants.WORKERS_MISSING):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def limited(reason, message="group cpu: 2 × MaxReached"):
    return missing(reason, message, kind=constants.SCALING_LIMITED)


UNSCHEDULABLE, QUOTA = missing("Unschedulable"), missing("QuotaExceeded")
CONTENDED = missing("ReplicasRewritten", "group cpu: replicas is 1", kind=constants.REPLICAS_CONTENDED)
STARTING = missing(constants.WAITING_FOR_PODS)


@pytest.mark.rule("SC:S21")
@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        pytest.param([], [UNSCHEDULABLE], [constants.WORKERS_MISSING], id="workers are missing now"),
        pytest.param([], [STARTING], [], id="workers start"),
        pytest.param([STARTING], [UNSCHEDULABLE], [constants.WORKERS_MISSING], id="a cause is known now"),
        pytest.param([UNSCHEDULABLE], [UNSCHEDULABLE], [], id="nothing has changed, as after a restart"),
        pytest.param([missing("Unschedulable", "2 of 5")], [UNSCHEDULABLE], [], id="only the number has changed"),
        pytest.param([UNSCHEDULABLE], [QUOTA], [constants.WORKERS_MISSING], id="the cause has changed"),
        pytest.param([UNSCHEDULABLE], [], [], id="none is missing any more"),
        pytest.param([], [limited("MaxReached")], [constants.SCALING_LIMITED], id="scaling is limited now"),
        pytest.param([limited("MaxReached")], [limited("MaxReached", "3 ×")], [], id="as before, with another number"),
        pytest.param(
            [limited("MaxReached")],
            [limited("NoFittingGroup")],
            [constants.SCALING_LIMITED],
            id="another limit comes first",
        ),
        pytest.param(
            [],
            [UNSCHEDULABLE, limited("MaxReached")],
            [constants.WORKERS_MISSING, constants.SCALING_LIMITED],
            id="both",
        ),
        pytest.param([], [CONTENDED], [constants.REPLICAS_CONTENDED], id="another client writes replicas"),
        pytest.param([CONTENDED], [CONTENDED], [], id="it still does"),
        pytest.param([], [missing("HeadMissing", kind=constants.AUTOSCALER_DOWN)], [], id="other conditions"),
        pytest.param([], [missing("Unschedulable", status="False")], [], id="a condition that is not True"),
    ],
)
def test_a_condition_has_an_event_when_it_becomes_true_or_its_reason_changes(before, after, reasons):
    assert [event.reason for event in condition_events(before, after)] == reasons


def test_the_event_is_a_warning_with_the_message_of_the_condition():
    (event,) = condition_events([], [UNSCHEDULABLE])
    assert event == EventSpec(constants.WORKERS_MISSING, UNSCHEDULABLE["message"], action="Reconcile")
    assert event.event_type == "Warning"


@pytest.mark.parametrize(
    ("detail", "holder", "rest"),
    [
        pytest.param("x" * 5000, "free cpu on the nodes", "", id="a long cause"),
        pytest.param("é" * 5000, "free cpu on the nodes", "", id="letters of two bytes"),
        pytest.param("no node", "é" * 5000, "", id="a long holder"),
        pytest.param(
            "no node", "free cpu on the nodes", "; group gpu: 1 of 2 workers not ready" * 99, id="many groups"
        ),
        pytest.param("", "", "x" * 5000, id="no fix"),
    ],
)
def test_an_event_of_a_long_condition_keeps_the_first_cure_and_fits(detail, holder, rest):
    fix = render.held_by(holder, "add nodes") if holder else ""
    text = messages.workers_not_ready("cpu", 3, 5, "Unschedulable", detail)
    (event,) = condition_events([], [missing("Unschedulable", f"{text}{fix}{rest}")])
    assert event.message.startswith("group cpu: 3 of 5 workers not ready (Unschedulable: ")
    assert (len(event.message.encode()) <= render.LONGEST_NOTE) is (fix != "")  # the recorder cuts the others
    assert len(holder) > 100 or event.message.endswith(fix)

"""Every timestamp that other clients may write is read as a moment within bounds, or as none."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raytide.api import constants, trainingjob_constants
from raytide.api.autoscaler_decision import parse_record as parse_decisions
from raytide.api.conditions import parse_timestamp, timestamp
from raytide.api.gang_admission import may_be_admitted_at
from raytide.api.pod import ContainerView
from raytide.api.trainingjob import TrainingJob
from raytide.autoscaler.model import NodeType, amounts_of
from raytide.autoscaler.state.group_availability import AvailabilityInputs, assess_availability
from raytide.autoscaler.state.instance_lifecycle import Timers
from raytide.autoscaler.state.instances import instances
from raytide.autoscaler.state.node_types import NodeTypes
from raytide.autoscaler.state.observation import InstanceInputs
from raytide.fairshare.eligibility import admission_waits_until, cooldowns_of, job_demand
from support.builders import CLUSTER_UID, group, head, pod
from support.job_world import JobWorld
from support.training_builders import JOB_UID, trainingjob
from unit.raycluster.test_conditions_scaling import Scenario, written

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONGEST = timedelta(seconds=10**9 + 1)
"""The longest duration that is added to a moment: a cooldown of a job."""
WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.one_of(
    st.datetimes(timezones=st.none() | OFFSETS | st.just(UTC)),
    st.datetimes(max_value=datetime.min + timedelta(days=2), timezones=OFFSETS),  # noqa: DTZ901 - bounds are without a zone
    st.datetimes(min_value=datetime.max - timedelta(days=2), timezones=OFFSETS),  # noqa: DTZ901 - bounds are without a zone
    st.timedeltas(timedelta(days=-2), timedelta(days=2)).map(lambda distance: NOW + distance),
).map(lambda moment: moment.isoformat())
EDGES = ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "0999-12-31T23:59:59Z")


def at_the_edges(test):
    for text in EDGES:
        test = example(text)(test)
    return settings(max_examples=60, deadline=None)(given(TIMES)(test))


@at_the_edges
def test_a_moment_that_is_read_can_be_reckoned_with_and_written(text):
    moment = parse_timestamp(text)
    if moment is None:
        assert not 1001 <= int(text[:4]) < 8999
        return
    meant = datetime.fromisoformat(text)
    assert moment == (meant if meant.tzinfo else meant.replace(tzinfo=UTC))
    assert moment.tzinfo is UTC
    assert moment - LONGEST < moment < moment + LONGEST
    assert WRITTEN.fullmatch(timestamp(moment))
    assert parse_timestamp(timestamp(moment)) == moment.replace(microsecond=0)


def conditions(text, *kinds, status="False"):
    return [
        {"type": kind, "status": status, "reason": "GangTimeout", "message": "m", "lastTransitionTime": text}
        for kind in kinds
    ]


def sharing_record(text):
    resizes = [
        {"at": text, "from": 4, "to": 2, "reason": reason, "message": "m"}
        for reason in ("Unschedulable", "Shrinking", "CreationForbidden", "Unschedulable")
    ]
    document = {"v": 1, "uid": JOB_UID, "replicas": 2, "admitted": True, "admittedAt": text, "at": text}
    return {trainingjob_constants.SHARING_ANNOTATION: json.dumps({**document, "resizes": resizes})}


def job_status(text):
    return {
        "startTime": text,
        "completionTime": text,
        "conditions": conditions(text, "Admitted", "Waiting", "Scaling"),
        "admission": {"timeouts": 40},
        "scaling": {"lastScaleTime": text, "history": [{"time": text, "from": 4, "to": 2}]},
        "failures": {
            "counted": [],
            "inARow": 40,
            "lastTime": text,
            "incidentTime": text,
            "disruptionTime": text,
            "resizeIncidentTimes": [text, text],
        },
    }


LONG_RESTS = dict.fromkeys(("growCooldownSeconds", "shrinkCooldownSeconds", "minRuntimeSeconds"), 2**31 - 1)


@at_the_edges
def test_a_sharing_pass_survives_every_time_of_a_job(text):
    obj = trainingjob(startPolicy="Gang", scaling=LONG_RESTS)
    obj["metadata"]["annotations"] = sharing_record(text)
    job = TrainingJob.parse({**obj, "status": job_status(text)})
    claim = job_demand(job, live_trainers=2, gpus=frozenset())
    rest = cooldowns_of(claim, NOW)
    assert rest.until is None or rest.until > NOW
    waits = admission_waits_until(job, NOW), may_be_admitted_at(job)
    assert all(moment is None or moment.tzinfo is UTC for moment in waits)


@at_the_edges
def test_a_pass_over_a_job_survives_every_time_in_it_and_writes_good_ones(text):
    world = JobWorld(ttlSecondsAfterFinished=100, activeDeadlineSeconds=2**31 - 1)
    world.settle().run()
    world.obj["metadata"]["annotations"] = sharing_record(text)
    world.obj["status"] = {**world.status, **job_status(text)}
    world.pod("trainer-0", creation_timestamp=text)
    ended = ContainerView("trainer", "terminated", "Error", exit_code=1, finished_at=text)
    world.pod("trainer-1", creation_timestamp=text, started_at=text, phase="Failed", containers=(ended,))
    world.now = NOW
    world.reconcile()
    for moment in (entry["time"] for entry in world.status.get("scaling", {}).get("history", ())):
        assert moment == text or WRITTEN.fullmatch(moment)
    reported = len(world.events)
    world.reconcile()
    world.reconcile()
    assert world.events[reported:] == [], "what was told is not told again, whatever the offset of its time"


def decisions(text):
    order = {"replicas": 1, "delete": [], "backoff": {"n": 2**31 - 1, "until": text, "newest": text}, "deadline": text}
    groups = dict.fromkeys(("cpu", "removed"), order)
    return json.dumps({"v": 2, "cluster": CLUSTER_UID, "head": head().uid, "at": text, "groups": groups})


@at_the_edges
def test_a_pass_over_a_raycluster_survives_every_time_in_it(text):
    scenario = Scenario(group("cpu", replicas=3))
    kinds = ("HeadPodReady", "RayClusterWorkersMissing", constants.AUTOSCALER_DOWN, constants.REPLICAS_CONTENDED)
    scenario.obj["metadata"]["annotations"] = {constants.AUTOSCALER_DECISION_ANNOTATION: decisions(text)}
    scenario.obj["metadata"]["managedFields"] = [written("argocd", 0) | {"time": text}]
    for status in ("False", "True"):
        scenario.obj["status"] = {"conditions": conditions(text, *kinds, constants.WORKERS_MISSING, status=status)}
        stray = pod("demo-removed-worker-a", group="removed")
        well = ContainerView("ray-worker", "terminated", "Completed", exit_code=0, finished_at=text)
        ended = pod("demo-cpu-worker-b", group="cpu", phase="Succeeded", creation_timestamp=text, containers=(well,))
        scenario.reconcile_after(0, head(creation_timestamp=text), stray, ended)
        scenario.reconcile_after(10)


@at_the_edges
def test_a_pass_of_the_autoscaler_accepts_every_timestamp_in_its_record(text):
    record = parse_decisions(decisions(text))
    assert record is not None
    cpu = amounts_of({"CPU": 1})
    types = NodeTypes((NodeType("headgroup", max_nodes=1), NodeType("cpu", max_nodes=5, resources=cpu)))
    pods = [head(), pod("w", group="cpu", phase="Pending", creation_timestamp=text)]
    found = instances(InstanceInputs(pods, [], types, 1000.0, {"cpu": 3}, set(), set()), Timers())
    backoffs = {name: decision.backoff for name, decision in record.groups.items()}
    assess_availability(found, types, AvailabilityInputs(NOW, 1000.0, backoffs=backoffs))


@pytest.mark.parametrize("text", EDGES)
def test_what_cannot_be_reckoned_with_is_no_moment(text):
    assert parse_timestamp(text) is None

"""The events of both kinds, with their type and messages.

The texts are those of reason_texts.py; this module has which event has which reason. Used by reasons.py.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from raytide.api import actions, constants, meta, pod_failure, sharing_record
from raytide.api import trainingjob_constants as training
from raytide.kube.event_recorder import NORMAL, WARNING, build_note
from raytide.raycluster import messages
from raytide.trainingjob import messages as training_messages
from raytide.trainingjob.events import NOT_CAPACITY
from raytide.trainingjob.waiting_condition import WITHOUT_EVENT
from reason_sources import function_docstring
from reason_texts import (
    RAYCLUSTER,
    TRAININGJOB,
    Described,
    Event,
    MissingEntryError,
    Number,
    cause_messages,
    cure_of,
    messages_of,
    of,
    one_line,
    unsupported_messages,
    violation_messages,
    with_remedy,
)


def _write(owner: ModuleType, kind: str, done: str, failed: str, *examples: actions.Action) -> Iterator[Event]:
    """The events of a write that succeeded and of one that the API server rejected; an empty name: the write has no such event."""
    outcomes = (
        (NORMAL, done, actions.Result.DONE, ""),
        (WARNING, failed, actions.Result.REJECTED, "MESSAGE OF THE API SERVER"),
    )
    for event_type, name, result, text in outcomes:
        if name:
            notes = tuple(build_note([actions.Outcome(action, result, message=text)]) for action in examples)
            yield Event(event_type, of(owner, name, kind), notes)


def _create(resource: meta.Resource) -> actions.Create:
    return actions.Create(resource, {"metadata": {"name": "NAME"}}, "")


def _delete(resource: meta.Resource, why: str = "CAUSE") -> actions.Delete:
    return actions.Delete(resource, "", "NAME", "", "", message=why)


def _patch(resource: meta.Resource) -> actions.Patch:
    return actions.Patch(resource, "", "NAME", "", {})


def _posted(described: Described, build: Callable[..., actions.EventSpec], **given: Any) -> Event:
    """The event that a function of raycluster/messages.py builds."""
    built = messages_of(build, **given)
    if {spec.reason for spec in built} != {described.name}:
        raise MissingEntryError(f"{build.__name__} builds events with other reasons than {described.name}")
    return Event(built[0].event_type, described, tuple(spec.message for spec in built))


def raycluster_events() -> tuple[Event, ...]:
    """About a RayCluster, by object."""

    def write(done: str, failed: str, *examples: actions.Action) -> Iterator[Event]:
        return _write(constants, RAYCLUSTER, done, failed, *examples)

    meaning = one_line(function_docstring(messages.condition_true).partition("\n\n")[0])
    conditions = (constants.WORKERS_MISSING, constants.SCALING_LIMITED, constants.REPLICAS_CONTENDED)
    pods, cleanup = meta.PODS, messages.redis_not_cleaned_up
    clamped = tuple(
        spec.message
        for number in (3, 1)  # above and below what is used
        for spec in messages_of(messages.replicas_clamped, replicas=Number("REPLICAS", number), more_groups=0)
    )
    spec_warnings = (
        *violation_messages(),
        *(spec.message for spec in messages_of(messages.unknown_workers_to_delete)),
        *(spec.message for spec in messages_of(messages.unknown_waiver)),
    )
    return (
        *write("CREATED_SERVICE", "FAILED_TO_CREATE_SERVICE", _create(meta.SERVICES)),
        *write("CREATED_SERVICE_ACCOUNT", "FAILED_TO_CREATE_SERVICE_ACCOUNT", _create(meta.SERVICE_ACCOUNTS)),
        _posted(of(constants, "AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND"), messages.service_account_not_found),
        *write("CREATED_ROLE", "FAILED_TO_CREATE_ROLE", _create(meta.ROLES)),
        *write("CREATED_ROLE_BINDING", "FAILED_TO_CREATE_ROLE_BINDING", _create(meta.ROLE_BINDINGS)),
        *write("CREATED_HEAD_POD", "FAILED_TO_CREATE_HEAD_POD", _create(pods)),
        *write("DELETED_HEAD_POD", "FAILED_TO_DELETE_HEAD_POD", _delete(pods)),
        _posted(of(constants, "HEAD_POD_LOST"), messages.head_pod_lost),
        *write("CREATED_WORKER_POD", "FAILED_TO_CREATE_WORKER_POD", _create(pods)),
        *write("DELETED_WORKER_POD", "FAILED_TO_DELETE_WORKER_POD", _delete(pods)),
        *write("OOM_KILLED", "", _delete(pods)),
        _posted(of(constants, "KEPT_FAILED_POD"), messages.kept_failed_pod),
        *write("DELETED_POD", "FAILED_TO_DELETE_POD_COLLECTION", _delete(pods, messages.CLUSTER_SUSPENDED)),
        *(
            _posted(
                Described(condition, meaning, "Act on holder and cure in the message."),
                messages.condition_true,
                condition_type=condition,
            )
            for condition in conditions
        ),
        Event(WARNING, of(constants, "INVALID_SPEC"), spec_warnings),
        Event(WARNING, of(constants, "INVALID_METADATA"), violation_messages()),
        Event(WARNING, of(constants, "INVALID_STATUS"), violation_messages()),
        Event(WARNING, of(constants, "UNSUPPORTED_FIELD"), unsupported_messages()),
        Event(WARNING, of(constants, "REPLICAS_CLAMPED"), clamped),
        _posted(of(constants, "RAYS_AUTOSCALER_USED"), messages.rays_autoscaler_used),
        _posted(of(constants, "HEAD_SERVICE_CHANGED"), messages.head_service_changed),
        *(
            _posted(of(constants, name), cleanup, reason=getattr(constants, name))
            for name in ("REDIS_CLEANUP_SKIPPED", "REDIS_CLEANUP_FAILED", "FORCE_DELETED_STUCK_CLUSTER")
        ),
        *write("", "FAILED_TO_REMOVE_FINALIZER", _patch(meta.RAYCLUSTERS)),
    )


def trainingjob_events() -> tuple[Event, ...]:
    """About a TrainingJob."""
    say = training_messages

    def job(name: str, owner: ModuleType | type = training) -> Described:
        return of(owner, name, TRAININGJOB)

    def write(done: str, failed: str, *examples: actions.Action) -> Iterator[Event]:
        return _write(training, TRAININGJOB, done, failed, *examples)

    counted = (
        *messages_of(say.counted_for_backoff),
        *messages_of(say.counted_for_percent),
        say.uncounted_disruption(),
        say.uncounted_peer(),
    )
    ended = tuple(
        text for how in counted for text in messages_of(say.pod_ended, termination="HOW IT ENDED", counted=how)
    )
    causes = sorted(NOT_CAPACITY - WITHOUT_EVENT)
    return (
        Event(NORMAL, of(sharing_record, "ADMITTED", TRAININGJOB), ("0→AFTER MESSAGE",)),
        Event(NORMAL, job("SCALED_UP"), ("BEFORE→AFTER MESSAGE",)),
        Event(NORMAL, job("SCALED_DOWN"), ("BEFORE→AFTER MESSAGE",)),
        Event(WARNING, job("WAITING_FOR_RESOURCES"), with_remedy(("REASON: MESSAGE",))),
        *(Event(WARNING, job(cause.name, pod_failure.Cause), with_remedy(cause_messages(cause))) for cause in causes),
        Event(WARNING, job("GANG_TIMEOUT"), messages_of(say.start_timed_out)),
        *write("CREATED_SERVICE", "FAILED_TO_CREATE_SERVICE", _create(meta.SERVICES)),
        *write("CREATED_MEMBERSHIP", "FAILED_TO_CREATE_MEMBERSHIP", _create(meta.CONFIG_MAPS)),
        *write("UPDATED_MEMBERSHIP", "FAILED_TO_UPDATE_MEMBERSHIP", _patch(meta.CONFIG_MAPS)),
        *write("CREATED_POD", "FAILED_TO_CREATE_POD", _create(meta.PODS)),
        Event(WARNING, job("POD_FAILED"), ended),
        *write("DELETED_POD", "FAILED_TO_DELETE_POD", _delete(meta.PODS)),
        Event(NORMAL, job("SUCCEEDED"), ("MESSAGE OF THE CONDITION",)),
        Event(
            WARNING,
            Described(training.FAILED, job("FAILED").meaning, cure_of(say.POD_FAILED, TRAININGJOB)),
            ("MESSAGE OF THE CONDITION",),
        ),
        Event(WARNING, job("INVALID_SPEC"), violation_messages()),
        *write(
            "DELETED_JOB",
            "FAILED_TO_DELETE_JOB",
            _delete(meta.TRAININGJOBS, str(messages_of(say.job_expired)[0])),
        ),
    )

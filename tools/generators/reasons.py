"""Write docs/conditions.md and docs/events.md, or check that they are current.

The pages have every condition, reason and event that the operator writes, from the code: meanings are the docstrings of the constants
and of the functions that build messages, remedies those of api/remedies.py, messages the return values of the functions with
upper-case words as arguments, so that none of it can differ from what users see. It fails for a reason that the code can write
(reason_sources.py) and the pages do not have. `python tools/generators/reasons.py` writes, `--check` changes nothing.
"""

import inspect
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self

from raytide.api import actions, constants, meta, pod_failure, sharing_record
from raytide.api import trainingjob_constants as training
from raytide.api.autoscaler_decision import LIMIT_REASONS, Why
from raytide.api.conditions import ConditionUpdate
from raytide.api.remedies import REMEDIES, SUSPENDED, Facts
from raytide.api.violations import Unsupported, Violation
from raytide.autoscaler.scaling import limit_reasons
from raytide.autoscaler.state import group_availability, pod_startup
from raytide.fairshare.algorithm import model
from raytide.kube.event_recorder import NORMAL, WARNING, build_note
from raytide.raycluster import messages
from raytide.raycluster.conditions import FAILURE_CLASS
from raytide.trainingjob import messages as training_messages
from raytide.trainingjob.events import NOT_CAPACITY
from raytide.trainingjob.waiting_condition import WITHOUT_EVENT
from reason_sources import docstring_of, function_docstring, written_reasons

ROOT: Final = Path(__file__).resolve().parents[2]
RAYCLUSTER, TRAININGJOB = KINDS = ("RayCluster", "TrainingJob")


class MissingEntryError(Exception):
    """A reason that the code can write is not on a page, or has no text."""


# --- texts from the code -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Described:
    """A name that users see, with its meaning and what to do about it; the latter is empty if nothing has to be done."""

    name: str
    meaning: str
    cure: str = ""


def of(owner: ModuleType | type, constant: str, kind: str = RAYCLUSTER) -> Described:
    """The constant or enum member: its docstring has the meaning and, after an empty line, what to do about it."""
    value = getattr(owner, constant)
    name = str(getattr(value, "value", value))
    meaning, _, cure = docstring_of(owner, constant).partition("\n\n")
    if not meaning:
        raise MissingEntryError(f"{owner.__name__}.{constant} has no docstring, which is its row on the page")
    return Described(name, _one_line(meaning), _one_line(cure) or cure_of(name, kind))


def cure_of(reason: str, kind: str) -> str:
    """What api/remedies.py has for that reason, with upper-case words for names; empty for a reason without a remedy."""
    detail = "" if reason == SUSPENDED else "…"  # suspended by the user; a queue is named in docs/why.md
    facts = Facts(kind, "NAMESPACE", "NAME", "GROUP", pod="POD", detail=detail)
    return _sentence(REMEDIES[reason].cure_in(facts)) if reason in REMEDIES else ""


class _Number(int):
    """A number whose text is a word."""

    word: str

    def __new__(cls, word: str, value: int = 2) -> Self:
        number = super().__new__(cls, value)
        number.word = word
        return number

    def __format__(self, _spec: str) -> str:
        return self.word

    __str__ = __repr__ = lambda self: self.word


def messages_of(build: Callable[..., Any], **given: Any) -> tuple[Any, ...]:
    """What the function returns with upper-case words for its parameters, one value for each combination of the Boolean ones."""
    hints = typing.get_type_hints(build)
    calls: list[dict[str, Any]] = [{}]
    for name in inspect.signature(build).parameters:
        values = (given[name],) if name in given else _values(name, hints[name])
        calls = [{**call, name: value} for call in calls for value in values]
    return tuple(dict.fromkeys(build(**call) for call in calls))


def _values(name: str, hint: Any) -> tuple[Any, ...]:
    word = name.upper()
    if hint is bool:
        return True, False
    if hint is int or int in typing.get_args(hint):
        return (_Number(word),)
    if hint is Why:
        return (Why("REASON", _Number("COUNT"), "MESSAGE"),)
    if typing.get_origin(hint) in (Sequence, Iterable):
        return ((word.removesuffix("S"),),)
    return (word,)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _sentence(text: str) -> str:
    """With a capital letter and a period; a command stays as it is."""
    is_command = text.startswith(("kubectl ", "raytide "))
    return text if is_command or not text else f"{text[0].upper()}{text[1:]}."


# --- conditions --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a condition, with the statuses it comes with and its messages."""

    status: str
    described: Described
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """One type of condition; `messages` are those of all of its reasons."""

    described: Described
    reasons: tuple[Reason, ...]
    messages: tuple[str, ...] = ()
    remark: str = ""


def _true(owner: ModuleType | type, *names: str, kind: str = RAYCLUSTER) -> Iterator[Reason]:
    yield from (Reason("True", of(owner, name, kind)) for name in names)


def _with_remedy(texts: Iterable[str]) -> tuple[str, ...]:
    """The messages with holder and cure, as WorkersMissing, ScalingLimited and ReplicasContended have them."""
    return tuple(text + messages.held_by("HOLDER", "CURE") for text in texts)


def _violations() -> tuple[str, ...]:
    return (str(Violation("", "FIELD", "MESSAGE")),)


def _unsupported() -> tuple[str, ...]:
    return (str(Unsupported("FIELD", "MESSAGE")),)


def _raycluster_conditions() -> tuple[Condition, ...]:
    failures = {
        value: name for name, value in vars(constants).items() if name.startswith("FAILED_") and isinstance(value, str)
    }
    causes = tuple(_true(pod_failure.Cause, *(cause.name for cause in pod_failure.Cause)))
    limits = (
        *_true(
            limit_reasons,
            "NO_FITTING_GROUP",
            "CONSTRAINT_UNMET",
            "INVALID_GROUP",
            "MAX_REACHED",
            "UPSCALING_LIMITED",
            "DRAINING",
        ),
        *_true(limit_reasons, "HEAD_DOWN"),
        *causes,
        *_true(pod_startup.Unready, *(step.name for step in pod_startup.Unready)),
        *_true(group_availability.Stuck, *(each.name for each in group_availability.Stuck)),
        *_true(group_availability, "IN_BACKOFF"),
        *_true(constants, "OTHER_LIMIT"),
    )
    down = (
        ("HEAD_MISSING", (messages.HEAD_MISSING,)),
        ("HEAD_REPLACED", messages_of(messages.head_replaced)),
        ("HEAD_NODE_AWAY", messages_of(messages.head_node_away)),
        ("AUTOSCALER_NOT_RUNNING", messages_of(messages.autoscaler_not_running)),
        ("RECORD_OF_ANOTHER_CLUSTER", (messages.RECORD_OF_ANOTHER_CLUSTER,)),
    )
    both = "False, True"
    return (
        Condition(
            of(constants, "HEAD_POD_READY"),
            (
                Reason("True", of(constants, "HEAD_POD_READY_REASON")),
                Reason("False", of(constants, "HEAD_POD_NOT_FOUND"), (messages.HEAD_POD_NOT_FOUND,)),
                Reason("False", of(constants, "UNKNOWN")),
            ),
            remark="Any other reason, such as `ContainersNotReady` or `CrashLoopBackOff`, is that of the pod or of its container, and so "
            "is the message: `kubectl describe pod` and `kubectl logs` of the head have more.",
        ),
        Condition(
            of(constants, "PROVISIONED"),
            (
                Reason("True", of(constants, "ALL_PODS_READY_FIRST_TIME"), (messages.ALL_PODS_READY,)),
                Reason(
                    "False",
                    of(constants, "PODS_PROVISIONING"),
                    (messages.PODS_PROVISIONING, messages.HAS_BEEN_SUSPENDED),
                ),
            ),
        ),
        Condition(
            of(constants, "SUSPENDING"), (Reason(both, of(constants, "SUSPENDING"), (messages.DELETING_ALL_PODS,)),)
        ),
        Condition(of(constants, "SUSPENDED"), (Reason(both, of(constants, "SUSPENDED"), (messages.HOW_TO_RESUME,)),)),
        Condition(
            of(constants, "REPLICA_FAILURE"),
            tuple(_true(constants, *(failures[reason] for reason in FAILURE_CLASS.values()))),
            messages_of(messages.of_group, text="MESSAGE OF THE API SERVER"),
        ),
        Condition(
            of(constants, "WORKERS_MISSING"),
            (*_true(constants, "WAITING_FOR_PODS"), *causes),
            (
                *messages_of(messages.workers_not_ready, cause=""),
                *_with_remedy(messages_of(messages.workers_not_ready)),
            ),
        ),
        Condition(
            of(constants, "SCALING_LIMITED"),
            limits,
            _with_remedy((*messages_of(messages.scaling_limited), *messages_of(messages.scaling_limited, group=""))),
        ),
        Condition(
            of(constants, "AUTOSCALER_DOWN"),
            tuple(Reason(both, of(constants, name), texts) for name, texts in down),
            messages_of(messages.autoscaler_down, fault="MESSAGE"),
        ),
        Condition(
            of(constants, "REPLICAS_CONTENDED"),
            (Reason("False", of(constants, "REPLICAS_DIFFER")), *_true(constants, "REPLICAS_REWRITTEN")),
            _with_remedy(messages_of(messages.replicas_contended)),
        ),
        Condition(of(constants, "UNSUPPORTED"), tuple(_true(constants, "FEATURE_NOT_BUILT")), _unsupported()),
        Condition(
            of(constants, "INVALID"),
            tuple(_true(constants, "INVALID_SPEC", "INVALID_METADATA", "INVALID_STATUS")),
            _violations(),
        ),
    )


def _built(build: Callable[..., ConditionUpdate], **given: Any) -> Iterator[Reason]:
    """The reasons of a condition that a function of trainingjob/messages.py builds; its docstring has their meaning."""
    meaning = _one_line(function_docstring(build).partition("\n\n")[0]).partition(": ")[2]
    if not meaning:
        raise MissingEntryError(f"the docstring of {build.__name__} does not begin with the reasons and a colon")
    for update in messages_of(build, **given):
        stop = training.SUSPENDED if build is training_messages.is_suspended else update.reason
        described = Described(update.reason, f"{meaning[0].upper()}{meaning[1:]}", cure_of(stop, TRAININGJOB))
        yield Reason(str(update.status), described, (update.message,) if update.message else ())


def _trainingjob_conditions() -> tuple[Condition, ...]:
    say = training_messages

    def job(name: str, owner: ModuleType | type = training) -> Described:
        return of(owner, name, TRAININGJOB)

    def waiting(owner: ModuleType | type, name: str, *texts: str) -> Reason:
        return Reason("True, False" if owner is model else "True", job(name, owner), texts)

    ends = {
        "POD_FAILED": (*messages_of(say.trainer_failed), *messages_of(say.container_failed)),
        "ALL_FAILED": (say.all_trainers_failed(),),
        "BACKOFF_LIMIT_EXCEEDED": messages_of(say.backoff_limit_exceeded),
        "TOO_MANY_FAILED": messages_of(say.too_many_failed),
        "DEADLINE_EXCEEDED": messages_of(say.deadline_exceeded),
    }
    return (
        Condition(
            job("ADMITTED"),
            (
                *_built(say.admitted_without_gang),
                *_built(say.gang_is_starting),
                *_built(say.gang_is_ready),
                *_built(say.waits_for_admission),
                *_built(say.admission_timed_out, cause=messages_of(say.start_timed_out)[0]),
                *_built(say.not_admitted_while_suspended),
            ),
        ),
        Condition(
            job("RUNNING"),
            (
                *_built(say.running),
                *_built(say.not_running_while_suspended),
                *_built(say.not_running_after_the_end, reason=training.SUCCEEDED),
                *_built(say.not_running_after_the_end, reason=training.FAILED),
            ),
        ),
        Condition(
            job("SCALING"),
            (
                *_built(say.scaling, reason=training.SCALING_UP),
                *_built(say.scaling, reason=training.SCALING_DOWN),
                *_built(say.settled),
            ),
        ),
        Condition(
            job("WAITING"),
            (
                waiting(say, "NOT_ADMITTED", say.not_admitted_yet()),
                *(waiting(model, name) for name in SHARING_REASONS),
                waiting(training, "AWAITING_CAPACITY"),
                waiting(training, "GANG_TIMEOUT", *messages_of(say.not_admitted_before)),
                *(
                    waiting(pod_failure.Cause, cause.name, *_cause_messages(cause))
                    for cause in pod_failure.Cause
                    if cause is not pod_failure.Cause.QUOTA
                ),
                waiting(say, "BACKING_OFF", *messages_of(say.backing_off, failures=2)),
                waiting(say, "WAITING_FOR_MASTER", say.waiting_for_master()),
                waiting(say, "WAITING_FOR_PSERVERS", *messages_of(say.waiting_for_pservers)),
                waiting(say, "POD_TERMINATING", *messages_of(say.pods_terminating)),
            ),
            remark="A message without a form here is that of the sharing pass: what is missing, for which size, and what holds it.",
        ),
        Condition(job("SUSPENDED"), (*_built(say.is_suspended), *_built(say.is_resumed))),
        Condition(
            job("SUCCEEDED"),
            (
                Reason("True", job("RANK_ZERO_SUCCEEDED"), (say.rank_zero_succeeded(),)),
                Reason("True", job("TRAINER_SUCCEEDED"), messages_of(say.trainer_succeeded)),
                Reason("True", job("TRAINERS_SUCCEEDED"), messages_of(say.trainers_succeeded)),
            ),
        ),
        Condition(job("FAILED"), tuple(Reason("True", job(name, say), texts) for name, texts in ends.items())),
        Condition(job("UNSUPPORTED"), (Reason("True", job("FEATURE_NOT_BUILT")),), _unsupported()),
        Condition(job("INVALID"), (Reason("True", job("INVALID_SPEC")),), _violations()),
    )


SHARING_REASONS: Final = (
    "INSUFFICIENT",
    "INSUFFICIENT_GPU",
    "FRAGMENTED",
    "UNSATISFIABLE",
    "HIGHER_PRIORITY",
    "CAPACITY_RESERVED",
    "COOLING_DOWN",
    "QUOTA_EXCEEDED",
    "CAPACITY_UNKNOWN",
)
"""Constants of fairshare/algorithm/model.py: why a job waits for capacity."""


def _cause_messages(cause: pod_failure.Cause) -> tuple[str, ...]:
    if cause is pod_failure.Cause.NAME_TAKEN:
        return messages_of(training_messages.names_taken)
    if cause is pod_failure.Cause.FORBIDDEN:
        return messages_of(training_messages.create_rejected, detail="MESSAGE OF THE API SERVER")
    return messages_of(training_messages.pods_cannot_start)


# --- events ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """One reason of events about a kind."""

    type: str
    described: Described
    messages: tuple[str, ...]


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


def _raycluster_events() -> tuple[Event, ...]:
    def write(done: str, failed: str, *examples: actions.Action) -> Iterator[Event]:
        return _write(constants, RAYCLUSTER, done, failed, *examples)

    meaning = _one_line(function_docstring(messages.condition_true).partition("\n\n")[0])
    conditions = (constants.WORKERS_MISSING, constants.SCALING_LIMITED, constants.REPLICAS_CONTENDED)
    pods, cleanup = meta.PODS, messages.redis_not_cleaned_up
    clamped = tuple(
        spec.message
        for number in (3, 1)  # above and below what is used
        for spec in messages_of(messages.replicas_clamped, replicas=_Number("REPLICAS", number), more_groups=0)
    )
    spec_warnings = (
        *_violations(),
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
        Event(WARNING, of(constants, "INVALID_METADATA"), _violations()),
        Event(WARNING, of(constants, "INVALID_STATUS"), _violations()),
        Event(WARNING, of(constants, "UNSUPPORTED_FIELD"), _unsupported()),
        Event(WARNING, of(constants, "REPLICAS_CLAMPED"), clamped),
        _posted(of(constants, "RAYS_AUTOSCALER_USED"), messages.rays_autoscaler_used),
        _posted(of(constants, "HEAD_SERVICE_CHANGED"), messages.head_service_changed),
        *(
            _posted(of(constants, name), cleanup, reason=getattr(constants, name))
            for name in ("REDIS_CLEANUP_SKIPPED", "REDIS_CLEANUP_FAILED", "FORCE_DELETED_STUCK_CLUSTER")
        ),
        *write("", "FAILED_TO_REMOVE_FINALIZER", _patch(meta.RAYCLUSTERS)),
    )


def _trainingjob_events() -> tuple[Event, ...]:
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
        Event(WARNING, job("WAITING_FOR_RESOURCES"), ("REASON: MESSAGE",)),
        *(Event(WARNING, job(cause.name, pod_failure.Cause), _cause_messages(cause)) for cause in causes),
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
        Event(WARNING, job("INVALID_SPEC"), _violations()),
        *write(
            "DELETED_JOB",
            "FAILED_TO_DELETE_JOB",
            _delete(meta.TRAININGJOBS, str(messages_of(say.job_expired)[0])),
        ),
    )


# --- pages -------------------------------------------------------------------------------------------------------------------


def conditions() -> dict[str, tuple[Condition, ...]]:
    """The conditions of each kind; fails for a reason of the code that none of them has."""
    found = {RAYCLUSTER: _raycluster_conditions(), TRAININGJOB: _trainingjob_conditions()}
    listed = {
        reason.described.name
        for each in found[RAYCLUSTER]
        if each.described.name == constants.SCALING_LIMITED
        for reason in each.reasons
    }
    if listed != {*map(str, LIMIT_REASONS), constants.OTHER_LIMIT}:
        raise MissingEntryError(
            f"reasons of ScalingLimited: {sorted(listed ^ {*map(str, LIMIT_REASONS), constants.OTHER_LIMIT})}"
        )
    for kind in KINDS:
        names = {reason.described.name for each in found[kind] for reason in each.reasons}
        _require(kind, "conditions", names, written_reasons(kind).conditions)
    return found


def events() -> dict[str, tuple[Event, ...]]:
    """The events of each kind; fails for a reason of the code that none of them has, and for a warning without a remedy."""
    found = {RAYCLUSTER: _raycluster_events(), TRAININGJOB: _trainingjob_events()}
    for kind in KINDS:
        _require(kind, "events", {event.described.name for event in found[kind]}, written_reasons(kind).events)
        for event in found[kind]:
            if event.type == WARNING and not event.described.cure:
                raise MissingEntryError(f"the warning {event.described.name} of a {kind} has no text on what to do")
    return found


def _require(kind: str, page: str, listed: Collection[str], written: Collection[str]) -> None:
    if missing := sorted(set(written) - set(listed)):
        raise MissingEntryError(f"docs/{page}.md has no {', '.join(missing)}, which the code writes for a {kind}")


CONDITIONS_INTRODUCTION: Final = (
    "# Conditions\n\n<!-- Written by tools/generators/reasons.py (`make reasons`): change the docstrings in the code. -->\n\n"
    "Every condition in `status.conditions` of a RayCluster and a TrainingJob, with every reason, written from the code of this version.\n"
    "Upper-case words stand for names, numbers and texts. [`raytide why`](why.md) shows for one object what holds it up and what to do;\n"
    "[events](events.md) show what happened.\n"
)
EVENTS_INTRODUCTION: Final = (
    "# Events\n\n<!-- Written by tools/generators/reasons.py (`make reasons`): change the docstrings in the code. -->\n\n"
    "Every event that the operator posts about a RayCluster and a TrainingJob, written from the code of this version. Upper-case words\n"
    "stand for names, numbers and texts. Equal writes of one pass are one event with their number, the first and the last name, such as\n"
    "`Created 3 pods FIRST … LAST`; what the spec causes is reported once per generation. `kubectl describe` shows the events of an\n"
    "object. The API server deletes events after an hour by default; [conditions](conditions.md) last.\n"
)


def conditions_page() -> str:
    """docs/conditions.md."""
    parts = [CONDITIONS_INTRODUCTION]
    for kind, found in conditions().items():
        parts.append(f"## {kind}\n")
        for each in found:
            parts.append(f"### {each.described.name} of a {kind}\n\n{each.described.meaning}\n")
            if each.messages:
                parts.append(f"Message: {_code(each.messages)}.\n")
            if each.remark:
                parts.append(f"{each.remark}\n")
            has_messages = any(reason.messages for reason in each.reasons)
            head = ("status", "reason", "means", *(("message",) if has_messages else ()), "what to do")
            rows = [
                (
                    reason.status,
                    f"`{reason.described.name}`",
                    reason.described.meaning,
                    *((_code(reason.messages),) if has_messages else ()),
                    reason.described.cure,
                )
                for reason in each.reasons
            ]
            parts.append(_table(head, rows))
    return "\n".join(parts)


def events_page() -> str:
    """docs/events.md."""
    parts = [EVENTS_INTRODUCTION]
    for kind, found in events().items():
        rows = [
            (
                event.type,
                f"`{event.described.name}`",
                event.described.meaning,
                _code(event.messages),
                event.described.cure,
            )
            for event in found
        ]
        parts.append(f"## Events of a {kind}\n\nPosted by `{kind.lower()}-controller`.\n")
        parts.append(_table(("type", "reason", "when", "message", "what to do"), rows))
    return "\n".join(parts)


def _code(texts: Iterable[str]) -> str:
    return " or ".join(f"`{text}`" for text in texts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def build_all() -> dict[Path, str]:
    """Every file that is written here, as it should be."""
    return {ROOT / "docs" / "conditions.md": conditions_page(), ROOT / "docs" / "events.md": events_page()}


def main() -> None:
    """Write, or with `--check` compare."""
    try:
        built = build_all()
    except MissingEntryError as error:
        sys.exit(str(error))
    if "--check" in sys.argv[1:]:
        old = [path for path, text in built.items() if not path.exists() or path.read_text() != text]
        if old:
            sys.exit("\n".join(f"{path} is not current, run `make reasons`" for path in old))
        return
    for path, text in built.items():
        path.write_text(text)


if __name__ == "__main__":
    main()

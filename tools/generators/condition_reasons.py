"""The conditions of both kinds, with every reason and its messages.

The texts are those of reason_texts.py; this module has which reasons a condition can have. Used by reasons.py.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

from raytide.api import constants, pod_failure
from raytide.api import trainingjob_constants as training
from raytide.api.conditions import ConditionUpdate
from raytide.autoscaler.scaling import limit_reasons
from raytide.autoscaler.state import group_availability, pod_startup
from raytide.fairshare.algorithm import model
from raytide.raycluster import messages
from raytide.raycluster.conditions import FAILURE_CLASS
from raytide.trainingjob import messages as training_messages
from reason_sources import function_docstring
from reason_texts import (
    RAYCLUSTER,
    TRAININGJOB,
    Condition,
    Described,
    MissingEntryError,
    Reason,
    cause_messages,
    cure_of,
    messages_of,
    of,
    one_line,
    unsupported_messages,
    violation_messages,
    with_remedy,
)


def _true(owner: ModuleType | type, *names: str, kind: str = RAYCLUSTER) -> Iterator[Reason]:
    yield from (Reason("True", of(owner, name, kind)) for name in names)


def raycluster_conditions() -> tuple[Condition, ...]:
    """Of a RayCluster, in the order in which they are first set."""
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
                *with_remedy(messages_of(messages.workers_not_ready)),
            ),
        ),
        Condition(
            of(constants, "SCALING_LIMITED"),
            limits,
            with_remedy((*messages_of(messages.scaling_limited), *messages_of(messages.scaling_limited, group=""))),
        ),
        Condition(
            of(constants, "AUTOSCALER_DOWN"),
            tuple(Reason(both, of(constants, name), texts) for name, texts in down),
            messages_of(messages.autoscaler_down, fault="MESSAGE"),
        ),
        Condition(
            of(constants, "REPLICAS_CONTENDED"),
            (Reason("False", of(constants, "REPLICAS_DIFFER")), *_true(constants, "REPLICAS_REWRITTEN")),
            with_remedy(messages_of(messages.replicas_contended)),
        ),
        Condition(of(constants, "UNSUPPORTED"), tuple(_true(constants, "FEATURE_NOT_BUILT")), unsupported_messages()),
        Condition(
            of(constants, "INVALID"),
            tuple(_true(constants, "INVALID_SPEC", "INVALID_METADATA", "INVALID_STATUS")),
            violation_messages(),
        ),
    )


def _built(build: Callable[..., ConditionUpdate], **given: Any) -> Iterator[Reason]:
    """The reasons of a condition that a function of trainingjob/messages.py builds; its docstring has their meaning."""
    meaning = one_line(function_docstring(build).partition("\n\n")[0]).partition(": ")[2]
    if not meaning:
        raise MissingEntryError(f"the docstring of {build.__name__} does not begin with the reasons and a colon")
    for update in messages_of(build, **given):
        stop = training.SUSPENDED if build is training_messages.is_suspended else update.reason
        described = Described(update.reason, f"{meaning[0].upper()}{meaning[1:]}", cure_of(stop, TRAININGJOB))
        yield Reason(str(update.status), described, (update.message,) if update.message else ())


def trainingjob_conditions() -> tuple[Condition, ...]:
    """Of a TrainingJob, in the order in which they are first set."""
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
                    waiting(pod_failure.Cause, cause.name, *cause_messages(cause))
                    for cause in pod_failure.Cause
                    if cause is not pod_failure.Cause.QUOTA
                ),
                waiting(say, "BACKING_OFF", *messages_of(say.backing_off, failures=2)),
                waiting(say, "WAITING_FOR_MASTER", say.waiting_for_master()),
                waiting(say, "WAITING_FOR_PSERVERS", *messages_of(say.waiting_for_pservers)),
                waiting(say, "POD_TERMINATING", *messages_of(say.pods_terminating)),
            ),
            remark="Where the table has no message, the sharing pass writes it: what is missing, for which size, and what holds it. "
            f"`{with_remedy([''])[0]}` follows each message.",
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
        Condition(job("UNSUPPORTED"), (Reason("True", job("FEATURE_NOT_BUILT")),), unsupported_messages()),
        Condition(job("INVALID"), (Reason("True", job("INVALID_SPEC")),), violation_messages()),
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

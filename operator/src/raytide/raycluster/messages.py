"""Texts of the conditions and events of a RayCluster.

One function or constant per condition text, reason for a delete, and event; each takes the values that the text names
and returns the text or the `EventSpec`. Violations of the spec have their texts beside their rules (validation.py,
validation_options.py, unsupported.py); texts of the API server are passed on unchanged. Pure; called by the modules
that plan writes and build conditions. Style: docs/contributing/style.md.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from raytide.api import constants
from raytide.api.actions import EventSpec
from raytide.api.conditions import cut
from raytide.diagnosis.model import Diagnosis
from raytide.diagnosis.render import note_with_fix, text_of

MAX_SHOWN: Final = 63
MAX_REJECTION: Final = 300
"""Of the API server's words in an event about something else."""
"""Maximum length of a user's value that an event repeats, in characters."""
MAX_NAMED: Final = 3
"""Maximum number of names listed in one event."""
LONGEST_NAME: Final = 253
"""The longest name that Kubernetes allows."""
LONGEST_MESSAGE: Final = 200
"""Of a condition's message in an event, in characters: an event note is limited to 1,024 bytes."""

CANNOT_BE_PARSED: Final = "RayCluster cannot be parsed: %s"
"""Log line with the violations."""
LOOKUP_REJECTED: Final = "cannot look for %s %s: %s"
"""Log line with kind, name and the API server's error; the object counts as missing."""
QUOTA_NOT_READ: Final = "cannot look at quota %s: %s"
"""Log line with name and error; the group waits for its backoff."""

# --- conditions: head, provisioning, suspension -----------------------------------------------------------------------

HEAD_POD_NOT_FOUND: Final = "head pod not found"
"""HeadPodReady, reason HeadPodNotFound."""
ALL_PODS_READY: Final = "all pods are running and ready"
"""RayClusterProvisioned, reason AllPodRunningAndReadyFirstTime."""
PODS_PROVISIONING: Final = "pods are being provisioned"
"""RayClusterProvisioned, reason RayClusterPodsProvisioning."""
HAS_BEEN_SUSPENDED: Final = "the RayCluster has been suspended"
"""RayClusterProvisioned of a suspended cluster."""
HOW_TO_RESUME: Final = "set spec.suspend to false to run the cluster again"
"""RayClusterSuspended."""
DELETING_ALL_PODS: Final = "all pods are being deleted"
"""RayClusterSuspending."""

# --- conditions: WorkersMissing, ReplicaFailure -----------------------------------------------------------------------


def of_group(group: str, text: str) -> str:
    """A text about one worker group, as ReplicaFailure and ScalingLimited list them."""
    return f"group {group}: {text}"


def workers_not_ready(group: str, missing: int, wanted: int, cause: str = "", detail: str = "") -> str:
    """WorkersMissing: the most frequent cause and one of its messages, if there is a cause."""
    text = of_group(group, f"{missing} of {wanted} workers not ready")
    return f"{text} ({cause}: {detail})" if cause else text


# --- conditions: AutoscalerDown, ReplicasContended, ScalingLimited ----------------------------------------------------

RECORD_OF_ANOTHER_CLUSTER: Final = "the decision record was written for another RayCluster"
HEAD_MISSING: Final = "the head pod does not exist"


def head_replaced(head: str) -> str:
    """AutoscalerDown, reason HeadReplaced."""
    return f"the decision record was written by the autoscaler of another head pod than {head}"


def head_node_away(node: str, head: str) -> str:
    """AutoscalerDown, reason HeadNodeAway."""
    return f"node {node} of head pod {head} is not Ready or is gone"


def autoscaler_not_running(head: str) -> str:
    """AutoscalerDown, reason AutoscalerNotRunning."""
    return f"container {constants.AUTOSCALER_CONTAINER} of head pod {head} is not running"


def autoscaler_down(fault: str, *, is_obeyed: bool, minutes: int) -> str:
    """AutoscalerDown: why the decision record is not valid, and which replicas apply."""
    if is_obeyed:
        return f"{fault}; the last decision applies for at most {minutes} minutes"
    return f"{fault}; replicas of the spec apply, no worker is deleted to reach them"


def replicas_contended(group: str, replicas: int, writer: str, decided: int, applied: int | None) -> str:
    """ReplicasContended: the spec's number and its last writer, the autoscaler's number, and the number that was applied before."""
    by = f" (written by {writer})" if writer else ""
    text = of_group(group, f"replicas is {replicas}{by}, the autoscaler decided {decided}")
    return text if applied is None else f"{text}; {applied} was already applied once"


REPLICAS_AGREE: Final = "replicas and the autoscaler's decision have agreed for less than 15 s"


def scaling_limited(group: str, why: Diagnosis) -> str:
    """ScalingLimited: the autoscaler's reason, with its group if it has one."""
    count = f"{why.count} × " if why.count else ""
    message = text_of(why)
    text = f"{count}{why.reason}" + (f" ({message})" if message else "")
    return of_group(group, text) if group else text


# --- reasons for deletes, in the events DeletedWorkerPod, DeletedHeadPod and DeletedPod -------------------------------

NAMED: Final = "named in scaleStrategy.workersToDelete"
CLUSTER_SUSPENDED: Final = "the RayCluster is suspended"
CLUSTER_DELETED: Final = "the RayCluster is deleted"
OTHER_HOSTS_REJECTED: Final = "the API server rejects the other hosts of its replica"
HOSTS_NOT_RECORDED: Final = "its replica lacks hosts, and its number of hosts is not recorded"


def other_head(head: str) -> str:
    """A second head pod."""
    return f"the cluster's head is pod {head}"


def group_removed(group: str) -> str:
    """A worker of a group that was removed from the spec."""
    return f"group {group} is no longer in the spec"


def surplus_workers(group: str, found: int, desired: int) -> str:
    """A surplus worker of a single-host group."""
    return f"group {group} has {found} workers, {desired} desired"


def surplus_replicas(group: str, found: int, desired: int) -> str:
    """A host of a surplus replica."""
    return f"group {group} has {found} replicas, {desired} desired"


def was_one_of_several_hosts(replica: str) -> str:
    """A host of a group that is now single-host."""
    return f"it was created as one of several hosts of replica {replica}"


def was_only_host(hosts: int) -> str:
    """A worker of a group that is now multi-host."""
    return f"it was created as the only host of its replica, the group now has numOfHosts {hosts}"


def no_replica_name(hosts: int) -> str:
    """A pod without replica labels that cannot be grouped with others into a replica."""
    return f"it has no replica name, and there are fewer than {hosts} such hosts to form a replica"


def other_number_of_hosts(hosts: int) -> str:
    """A host of a replica with another number of hosts than the group."""
    return f"its replica was created for another number of hosts, the group now has numOfHosts {hosts}"


def host_lost(host: str, *, is_terminating: bool) -> str:
    """A host of a replica of which another host ended or is terminating."""
    return f"host {host} of its replica {'is terminating' if is_terminating else 'has ended'}"


def host_named(host: str) -> str:
    """A host of a replica of which one host is named for deletion."""
    return f"host {host} of its replica is {NAMED}"


def duplicate_host(index: int | None, replica: str) -> str:
    """One of two pods with the same host index in a replica."""
    return f"host {index} of replica {replica} exists twice"


# --- events -----------------------------------------------------------------------------------------------------------


def head_node_lost(node: str) -> str:
    """Why a head is lost: its node."""
    return f"node {node} is not Ready or is gone"


def head_gone(reason: object, message: object) -> str:
    """Why a head is lost: its last HeadPodReady condition, which was False."""
    last_condition = ": ".join(str(part) for part in (reason, message) if part)
    return f"it was not ready ({last_condition[:LONGEST_MESSAGE]}) and no longer exists"


def head_pod_never_ready(head: str, reason: object, message: object) -> EventSpec:
    """A head ended without having been ready, so no state is lost; the cause is that of its last HeadPodReady condition."""
    cause = ": ".join(str(part) for part in (reason, message) if part)
    note = (
        f"Head pod {head} ended and never became ready ({cause[:LONGEST_MESSAGE]}); no GCS state is lost. Each next head pod that ends "
        "like this is replaced after a longer delay, until the spec changes"
    )
    return EventSpec(constants.HEAD_POD_NEVER_READY, note, constants.HEAD_GROUP, action="Replace")


def head_pod_without_owner(pod: str) -> EventSpec:
    """An ownerless pod that the head service selects: a second head behind the service would split the cluster."""
    note = (
        f"Pod {pod} has the labels of the cluster's head but no owner, so no second head is created beside it: delete pod {pod}, or remove "
        f"its label {constants.CLUSTER_LABEL}, and the operator creates the head"
    )
    return EventSpec(constants.HEAD_POD_WITHOUT_OWNER, note, constants.HEAD_GROUP, action="Create")


READY_HEAD_DELETED: Final = "it was deleted while it was ready"
"""Why a head is lost: it was ready before."""


def head_pod_lost(head: str, why: str, *, kept: str) -> EventSpec:
    """The head is lost and is replaced; `kept` is where the state of the GCS is, empty if it is lost, too."""
    if kept:
        state = f"the GCS state is kept {kept}: the next head restores it and workers reconnect"
    else:
        state = (
            "the GCS state is lost, including jobs, actors and objects: submit jobs again, or keep the state in "
            "Redis or on a volume (spec.gcsFaultToleranceOptions)"
        )
    note = f"Head pod {head} is lost: {why}; {state}"
    return EventSpec(constants.HEAD_POD_LOST, note, constants.HEAD_GROUP, action="Replace")


def kept_failed_pod(pod: str, group: str, how_it_ended: str) -> EventSpec:
    """A failed worker is kept for inspection."""
    note = f"Pod {pod} is kept until another pod of group {group} fails: {how_it_ended}"
    return EventSpec(constants.KEPT_FAILED_POD, note, group, action="Keep")


def service_account_not_found(account: str) -> EventSpec:
    """The service account in the head's template does not exist."""
    note = f"service account {account} of the head's template does not exist; create it, or remove serviceAccountName"
    return EventSpec(constants.AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND, note)


def no_auth_mode() -> EventSpec:
    """`authOptions` without a mode, which some read as `token`."""
    note = "spec.authOptions has no mode: Ray runs without authentication; set mode to token, or remove authOptions"
    return EventSpec(constants.INVALID_SPEC, note)


def claim_not_found(name: str) -> EventSpec:
    """The PersistentVolumeClaim that the spec names does not exist; the head pod waits for it."""
    note = (
        f"PersistentVolumeClaim {cut(name, LONGEST_NAME)} does not exist, the head pod waits for it; create it, or remove "
        "gcsFaultToleranceOptions.storage.claimName"
    )
    return EventSpec(constants.FAILED_TO_CREATE_PVC, note)


def claim_is_terminating(name: str) -> EventSpec:
    """The operator's claim is being deleted; a new one is created once it is gone."""
    note = (
        f"PersistentVolumeClaim {name} is being deleted, and the state of the GCS with it; a new one is created once it "
        "is gone, and then the next head pod"
    )
    return EventSpec(constants.FAILED_TO_CREATE_PVC, note)


def claim_differs(name: str, found: Sequence[str]) -> EventSpec:
    """The operator's claim exists and is not as the spec says."""
    note = (
        f"PersistentVolumeClaim {name} is used as it is: {'; '.join(found)}; change gcsFaultToleranceOptions.storage, or "
        "delete the claim to start with an empty one"
    )
    return EventSpec(constants.FAILED_TO_CREATE_PVC, note)


def unknown_workers_to_delete(group: str, names: Sequence[str]) -> EventSpec:
    """Names in `workersToDelete` of pods that are not workers of the group: one event, as the event budget is shared."""
    some = ", ".join(cut(name, LONGEST_NAME) for name in names[:MAX_NAMED])
    more = "" if len(names) <= MAX_NAMED else f" and {len(names) - MAX_NAMED} more"
    note = (
        f"scaleStrategy.workersToDelete of group {group} has names that are not workers of the group: "
        f"{some}{more}; no pod is deleted for them, remove them from the list"
    )
    return EventSpec(constants.INVALID_SPEC, note, group)


def unknown_waiver(word: str, known: Iterable[str]) -> EventSpec:
    """The annotation that accepts missing protection has an unknown value."""
    note = (
        f"annotation {constants.ALLOW_INSECURE_ANNOTATION} has the unknown value {word[:MAX_SHOWN]!r}, which waives "
        f"nothing; known are {', '.join(known)}"
    )
    return EventSpec(constants.INVALID_SPEC, note)


def head_service_changed(name: str) -> EventSpec:
    """HeadServiceChanged: services are not updated (RC:HS-1), so the user has to act."""
    return EventSpec(
        constants.HEAD_SERVICE_CHANGED,
        f"the selector of service {name} was changed and may not select the head pod: "
        "delete the service, the operator creates it again",
    )


def head_not_selected(
    service: str, head: str, label: str, selected: str, found: str | None, *, is_service_outdated: bool
) -> EventSpec:
    """HeadServiceChanged: the head pod has another value of a label of the selector.

    `is_service_outdated`: a new service would select the pod; otherwise the pod has labels of an earlier spec.
    """
    has = f"has no label {label}" if found is None else f"has {label}={found}"
    fix = (
        f"delete service {service}, the operator creates it again without labels that the spec overrides"
        if is_service_outdated
        else f"delete pod {head}, the operator creates it again with the labels of the spec"
    )
    return EventSpec(
        constants.HEAD_SERVICE_CHANGED,
        f"service {service} selects {label}={selected}, but head pod {head} {has}, so that the service has no endpoint: {fix}",
    )


def condition_true(condition_type: str, message: str) -> EventSpec:
    """The condition of this name became True, or has another reason now; the message is the condition's, cut so that the first fix remains."""
    return EventSpec(condition_type, note_with_fix(message), action="Reconcile")


def replicas_clamped(index: int, group: str, replicas: int, used: int, more_groups: int) -> EventSpec:
    """`replicas` of the group with that index, and of `more_groups` others, is outside its bounds."""
    bound = "above maxReplicas" if replicas > used else "below minReplicas"
    more = f"; the same applies to {more_groups} more groups" if more_groups else ""
    note = (
        f"spec.workerGroupSpecs[{index}].replicas is {replicas}, {bound}: "
        f"group {group[:MAX_SHOWN]} is scaled to {used}{more}"
    )
    return EventSpec(constants.REPLICAS_CLAMPED, note)


def rays_autoscaler_used(ray_version: str) -> EventSpec:
    """Ray's own autoscaler runs because of the Ray version."""
    note = (
        f"spec.rayVersion is {ray_version}, older than any with which Raytide's autoscaler is tested; "
        "Ray's autoscaler in the head's image runs instead, as with KubeRay"
    )
    return EventSpec(constants.RAYS_AUTOSCALER_USED, note, event_type="Normal")


CLEANUP_TIMED_OUT: Final = "it was not done in time"
CLEANUP_JOB_FAILED: Final = "its Job failed"
CLEANUP_IS_OFF: Final = "it is switched off, by ENABLE_GCS_FT_REDIS_CLEANUP"
FT_IS_OFF: Final = "GCS fault tolerance is off by now"
PODS_ARE_KEPT: Final = "the cluster is deleted without its pods"
OTHER_CONTROLLER: Final = "another controller manages the cluster"
UNREADABLE_SPEC: Final = "the spec cannot be read"
INVALID_SPEC: Final = "the spec is invalid"


def head_runs_on(pod: str) -> str:
    """Why no clean-up: a head without an owner uses the state."""
    return f"head pod {pod} has no owner and runs on"


def head_is_lost(pod: str, node: str) -> str:
    """Why the state may come back: nobody knows whether the process has ended."""
    return f"head pod {pod} may still write from node {node}, which is not ready"


def cleanup_job_rejected(message: str) -> str:
    """Why no clean-up: the API server's words."""
    return f"its Job was rejected: {cut(message, MAX_REJECTION)}"


REDIS_ADDRESS_IN_HEAD: Final = "the address in RAY_REDIS_ADDRESS of its head"
"""In place of the address of Redis, where the options do not have it."""


def redis_not_cleaned_up(reason: str, why: str, cluster: str, storage_namespace: str, redis_address: str) -> EventSpec:
    """The finalizer was removed, and data of the GCS may remain in Redis; `reason` is the event's."""
    note = (
        f"finalizer {constants.REDIS_CLEANUP_FINALIZER} of RayCluster {cluster} removed without cleaning up Redis "
        f"({why}): GCS data under storage namespace {storage_namespace} at {redis_address} may "
        "remain; remove it with cleanup_redis_storage of ray._private.gcs_utils, as the user guide shows"
    )
    return EventSpec(reason, note, action="Cleanup")

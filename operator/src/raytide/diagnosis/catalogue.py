"""The catalogue: for each reason its text, the stage that it stops, what holds the workload up there, and the fix.

The reasons are those of conditions and of the two decision records, and, where neither has one, those defined below. A text is
a template with the parameters of the diagnosis, or a function of the diagnosis; a text that is empty is the message of the
diagnosis. A reason without an entry gets one that refers to the message. Conditions, events, logs and explanations take all
texts from here, so that they are the same in all of them; the table of docs/why.md has every entry. Pure; called by render.py
(SC:S21).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from raytide.diagnosis.kubernetes_messages import (
    exceeded_quota,
    invalid_field,
    missing_object,
    rejected_by,
    unschedulable_for,
)
from raytide.diagnosis.model import Diagnosis, Stage, Workload

# --- reasons that no condition has ---------------------------------------------------------------------------------------

TERMINATING: Final = "Terminating"
MANAGED_BY_OTHER: Final = "ManagedByOther"
NOT_RECONCILED: Final = "NotReconciled"
SUSPENDED: Final = "Suspended"
GROUP_SUSPENDED: Final = "GroupSuspended"
AUTOSCALER_PAUSED: Final = "AutoscalerPaused"
REPLICAS_CLAMPED: Final = "ReplicasClamped"
HEAD_NOT_READY: Final = "HeadNotReady"
NODE_NOT_READY: Final = "NodeNotReady"
PODS_MISSING: Final = "PodsMissing"
CANNOT_BE_PARSED: Final = "CannotBeParsed"

DRAINING: Final = "Draining"
"""Nodes of a group finish their work before they are deleted: nothing is missing, so it has neither holder nor fix."""

Text = str | Callable[[Diagnosis, Workload], str]
"""A template with fields of `Workload`, the group and the parameters, or a function."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One reason: where it stops a workload, what holds that up, what to do, and what happened."""

    stage: Stage
    holder: Text
    fix: Text
    text: Text = ""
    """Empty: the message of the diagnosis."""
    is_permanent: bool = False
    """Whether waiting cannot help: it lasts until a spec, the demand or a node type changes."""
    stops_all: bool = False
    """Whether nothing of the workload runs or changes because of it."""


def entry_of(reason: str) -> Entry:
    """The entry of that reason; for an unknown one, one that refers to the message."""
    return CATALOGUE.get(reason, _OTHER)


# --- quotas and rejections -------------------------------------------------------------------------------------------------


def _quota_holder(found: Diagnosis, _: Workload) -> str:
    if tenant := found.parameters.get("tenant"):
        return f"the nominal quota and borrowing limit of tenant {tenant}"
    quota = exceeded_quota(found.message) or found.parameters.get("quota", "")
    return f"ResourceQuota {quota.rpartition('/')[2]}" if quota else "a ResourceQuota"


def _quota_fix(found: Diagnosis, of: Workload) -> str:
    if found.parameters.get("tenant"):
        return "raise the quota of the tenant in --tenants of the operator, or wait until jobs of the tenant end"
    quota = _quota_holder(found, of)
    return f"raise {quota} in namespace {of.namespace}, lower the requests, or delete pods that it counts"


_REJECTIONS: Final = {
    "user": ("the permissions of {}", "grant the permission that the message names to {}"),
    "webhook": ("admission webhook {}", "change the pod template as the message of webhook {} asks"),
    "priority class": ("PriorityClass {}", "create PriorityClass {}, or correct priorityClassName"),
    "pod security": (
        "Pod Security level {} of the namespace",
        "change the pod template as Pod Security {} asks, or the level of the namespace",
    ),
    "service account": ("service account {}", "create service account {}"),
    "service account name": ("service account {}", "create service account {}, or correct serviceAccountName"),
    "": ("the API server", "act on its message: a policy, a webhook or a missing permission rejects the pods"),
}
"""Holder and fix of what rejects a create (kubernetes_messages.py)."""


def _rejection_holder(found: Diagnosis, _: Workload) -> str:
    kind, name = rejected_by(found.message)
    return _REJECTIONS[kind][0].format(name)


def _rejection_fix(found: Diagnosis, _: Workload) -> str:
    kind, name = rejected_by(found.message)
    return _REJECTIONS[kind][1].format(name)


def _invalid_holder(found: Diagnosis, _: Workload) -> str:
    thing, name = invalid_field(found.message)
    return f"field {name} of {thing}" if name else "a field of the object"


def _invalid_fix(found: Diagnosis, _: Workload) -> str:
    _thing, name = invalid_field(found.message)
    return (
        f"correct {name or 'the field that the message names'} in the spec, from which the operator creates the object"
    )


def _config_holder(found: Diagnosis, _: Workload) -> str:
    missing = missing_object(found.message)
    return (
        f"{missing}, which does not exist"
        if missing
        else f"an object that {found.parameters.get('container', DEFAULTS['container'])} refers to"
    )


def _config_fix(found: Diagnosis, of: Workload) -> str:
    missing = missing_object(found.message)
    return f"create {missing} in namespace {of.namespace}" if missing else "create the object that the message names"


# --- nodes -----------------------------------------------------------------------------------------------------------------

_SCHEDULING: Final = {
    "resource": ("free {} on the nodes", "add nodes with free {}, lower the request, or end pods that use it"),
    "taint": ("the taint {} of nodes", "add a toleration for taint {} to the pod template, or nodes without it"),
    "selector": (
        "nodeSelector or affinity of the pod template",
        "label nodes as nodeSelector and affinity require, or change these fields of the pod template",
    ),
    "cordon": ("cordoned nodes", "uncordon nodes (kubectl uncordon), or add nodes"),
    "volume": ("a PersistentVolumeClaim of the pod", "create the PersistentVolumeClaim, or its volume"),
}
"""Holder and fix of what kube-scheduler misses (kubernetes_messages.py)."""


def _scheduling(kind: str, found: Diagnosis) -> tuple[str, str]:
    selector = found.parameters.get("selector", "").replace("{", "{{").replace("}", "}}")
    if kind == "selector" and selector:
        return (
            f"nodeSelector {selector}, or affinity, of the pod template",
            f"add nodes with the labels {selector}, or change nodeSelector or affinity of the pod template",
        )
    return _SCHEDULING[kind]


def _scheduling_holder(found: Diagnosis, _: Workload) -> str:
    lacks = unschedulable_for(found.message)
    holders = [_scheduling(kind, found)[0].format(" and ".join(names)) for kind, names in lacks.items()]
    return ", ".join(holders) or "kube-scheduler, which finds no node"


def _scheduling_fix(found: Diagnosis, of: Workload) -> str:
    lacks = unschedulable_for(found.message)
    fixes = [_scheduling(kind, found)[1].format(" and ".join(names)) for kind, names in lacks.items()]
    return "; or ".join(fixes) or f"kubectl describe pod {found.parameters.get('pod', _POD)} -n {of.namespace}"


def _gates_holder(found: Diagnosis, _: Workload) -> str:
    gates = found.parameters.get("gates", "")
    if "kueue.x-k8s.io" in gates:
        return "Kueue, which has not admitted the workload"
    return f"the controller of scheduling gate {gates}" if gates else "the controller that set the scheduling gate"


def _gates_fix(found: Diagnosis, of: Workload) -> str:
    if "kueue.x-k8s.io" in found.parameters.get("gates", ""):
        return f"kubectl get workloads -n {of.namespace}: its ClusterQueue needs free quota"
    return "wait until that controller removes the gate, or check that it runs"


# --- fair sharing ------------------------------------------------------------------------------------------------------------

MAX_LOAD: Final = "max-load"
PENDING_PODS: Final = "pending pods"
"""Values of the parameter `limit` of a workload that waits for capacity."""
NODES: Final = "nodes"
"""Value of the parameter `limit` of a pod that no node matches."""
_CAPACITY_HOLDERS: Final = {
    MAX_LOAD: "the usable capacity of all nodes, which --max-load of the operator may limit",
    PENDING_PODS: "pending pods of other workloads, which free capacity is reserved for",
}


def _capacity_holder(found: Diagnosis, _: Workload) -> str:
    return _CAPACITY_HOLDERS.get(found.parameters.get("limit", ""), "pods on the nodes where it may run")


def _unsatisfiable_holder(found: Diagnosis, _: Workload) -> str:
    return "the nodes that there are" if found.parameters.get("limit") == NODES else "the size of the nodes"


def _unsatisfiable_fix(found: Diagnosis, _: Workload) -> str:
    if found.parameters.get("limit") == NODES:
        return "add such a node; where nodes are added on demand, set --node-autoscaler of the operator to present"
    return "add a larger node, or lower the requests of the trainers"


def _job_holder(found: Diagnosis, _: Workload) -> str:
    return found.parameters.get("holder", "other TrainingJobs")


# --- sizes and suspension ------------------------------------------------------------------------------------------------------


def _writer(found: Diagnosis, _: Workload) -> str:
    return f"{found.parameters.get('writer', 'another client')}, which also writes replicas"


def _replicas_fix(_: Diagnosis, of: Workload) -> str:
    if of.kind == "TrainingJob":
        return "stop that client from writing replicas, raise min-instance, or set scaling.enabled to false"
    return "stop that client from writing replicas, or set minReplicas"


def _suspension_holder(found: Diagnosis, _: Workload) -> str:
    queue = found.parameters.get("queue")
    return f"Kueue, queue {queue}" if queue else "spec.suspend"


def _suspension_fix(found: Diagnosis, of: Workload) -> str:
    if queue := found.parameters.get("queue"):
        return f"kubectl get workloads -n {of.namespace}: Kueue resumes it when queue {queue} has free quota"
    resumed = "set spec.suspend to false"
    return f"{resumed}; removing the field does not resume a RayCluster" if of.kind == "RayCluster" else resumed


# --- texts of the autoscaler ---------------------------------------------------------------------------------------------------


def _no_fitting_group(found: Diagnosis, _: Workload) -> str:
    most = found.parameters.get("most")
    having = f", whose nodes have at most {most}" if most else ""
    return f"can never run: {found.parameters.get('shapes', '')} fit no group{having}; add a group with such nodes"


def _max_reached(found: Diagnosis, _: Workload) -> str:
    given = found.parameters
    if "maximum" in given:
        why = f"the group is at its maximum of {given['maximum']}: raise maxReplicas"
    elif "nodes" in given:
        why = f"the autoscaler plans at most {given['nodes']} nodes per Ray cluster: request less, or use several RayClusters"
    else:
        why = f"they need more than the group's maximum of {given.get('limit', '')}: raise maxReplicas"
    return f"pending: {given.get('shapes', '')}; {why}"


def _topology_unmet(found: Diagnosis, _: Workload) -> str:
    given, advice = found.parameters, []
    if "label" in given:
        advice.append(
            f"their topology_strategy requires nodes with one value of the label {given['label']}, and no value has enough "
            "of them: give each value a group with that label in its field `labels`, or raise maxReplicas of such groups"
        )
    if "unsupported" in given:
        advice.append(f"for the label {given['unsupported']} use STRICT_PACK: other strategies are not supported")
    return f"pending: {given.get('shapes', '')}; {'; '.join(advice)}"


# --- the table ---------------------------------------------------------------------------------------------------------------

_POD: Final = "POD"
"""In a command, where no pod is known."""
DEFAULTS: Final = {"pod": _POD, "container": "the container"}
"""Fields of templates that a diagnosis may not have."""

_SPEC: Final = "the spec of {kind} {name}"
_DESCRIBE: Final = "kubectl describe pod {pod} -n {namespace}"
_HEAD: Final = "container autoscaler of head pod {pod}"
_HEAD_LOG: Final = "kubectl logs {pod} -c autoscaler -n {namespace}"
_OPERATOR: Final = "the operator"
_OPERATOR_FIX: Final = "check that the operator runs, watches namespace {namespace} and has its permissions: its log and /readyz name what is missing"
_CAPACITY_FIX: Final = "free capacity, add nodes or use smaller trainers"
_INVALID: Final = Entry(
    Stage.WANTED, _SPEC, "correct the fields that the message names", is_permanent=True, stops_all=True
)
_FAILED: Final = Entry(
    Stage.WANTED,
    "the job, which has failed",
    "correct the cause, delete the job and create it again",
    is_permanent=True,
    stops_all=True,
)
_OTHER: Final = Entry(
    Stage.PODS, "see the message", "act on the message; kubectl describe {kind} {name} -n {namespace}"
)
_CREATION: Final = Entry(Stage.PODS, _rejection_holder, _rejection_fix)

CATALOGUE: Final[Mapping[str, Entry]] = {
    # whole workloads
    TERMINATING: Entry(
        Stage.WANTED, "{holder}", "wait until it is gone, then create it again", is_permanent=True, stops_all=True
    ),
    MANAGED_BY_OTHER: Entry(
        Stage.WANTED,
        "controller {controller}",
        "ask controller {controller}; for Raytide, create the object without spec.managedBy",
        stops_all=True,
    ),
    NOT_RECONCILED: Entry(Stage.WANTED, _OPERATOR, _OPERATOR_FIX, stops_all=True),
    SUSPENDED: Entry(Stage.WANTED, _suspension_holder, _suspension_fix, stops_all=True),
    GROUP_SUSPENDED: Entry(Stage.WANTED, "suspend of group {group}", "set suspend of group {group} to false"),
    CANNOT_BE_PARSED: _INVALID,
    "InvalidRayClusterSpec": _INVALID,
    "InvalidRayClusterMetadata": Entry(
        Stage.WANTED, _SPEC, "create it under another name", is_permanent=True, stops_all=True
    ),
    "InvalidRayClusterStatus": _INVALID,
    "InvalidSpec": _INVALID,
    # demand and the autoscaler's decision
    "NoFittingGroup": Entry(
        Stage.DEMAND,
        "the worker groups in the spec",
        "add a worker group with such nodes, or request less per task, actor or bundle",
        _no_fitting_group,
        is_permanent=True,
    ),
    "ConstraintUnmet": Entry(
        Stage.DEMAND,
        "maxReplicas of the worker groups",
        "raise maxReplicas, or request less with request_resources()",
        "request_resources() requests more than the groups may have, {shapes} too much: raise maxReplicas, or request less",
        is_permanent=True,
    ),
    "NodeBusy": Entry(
        Stage.DEMAND,
        "work on the live nodes that could run it",
        "wait until work on these nodes ends, or add a worker group with the resources and labels of the message",
        "pending: {shapes}; no group has such nodes, and the live ones are busy: wait until their work ends, or add a group with "
        "such resources and labels",
    ),
    "TopologyUnmet": Entry(
        Stage.DEMAND,
        "the labels and maxReplicas of the worker groups",
        "give each value of the label of the message a worker group with that label in its field labels, or raise "
        "maxReplicas of such groups",
        _topology_unmet,
    ),
    "InvalidGroup": Entry(Stage.DECISION, _SPEC, "correct the field that the message names", is_permanent=True),
    "MaxReached": Entry(
        Stage.DECISION,
        "maxReplicas of group {group}",
        "raise maxReplicas of group {group}, or wait until work in it ends",
        _max_reached,
    ),
    REPLICAS_CLAMPED: Entry(Stage.DECISION, "{limit}", "raise the maximum, or lower the requested size"),
    "UpscalingLimited": Entry(
        Stage.DECISION,
        "autoscalerOptions.upscalingMode: Conservative",
        "wait, or set upscalingMode to Default",
        "deferred nodes: {nodes}; upscalingMode is Conservative",
    ),
    DRAINING: Entry(Stage.DECISION, "", "", "draining nodes: {nodes}; a node is deleted when its work is finished"),
    "Backoff": Entry(
        Stage.DECISION,
        "the back-off of group {group} after a failure",
        "wait until the time in the message, or remove the cause: kubectl get events -n {namespace}",
        "its nodes did not start; one replica is retried at {until}",
    ),
    "ScaleGated": Entry(
        Stage.DECISION,
        "the controller that gated group {group}",
        "wait until that controller removes its entry from scaleStrategy.scaleGate, or check that it runs; for Kueue: "
        "kubectl get workloads -n {namespace}",
        "scaleStrategy.scaleGate has {gates}: no node of the group is launched until the controllers that wrote it have emptied it",
    ),
    "HeadDown": Entry(
        Stage.DECISION,
        "the head pod",
        "kubectl logs {pod} -n {namespace}: nothing is scaled until Ray's head node runs",
        stops_all=True,
    ),
    AUTOSCALER_PAUSED: Entry(
        Stage.DECISION,
        "annotation raytide.io/autoscaler: paused",
        "kubectl annotate raycluster {name} -n {namespace} raytide.io/autoscaler-",
    ),
    "HeadMissing": Entry(Stage.DECISION, "the head pod, which does not exist", "wait for the next head pod"),
    "HeadReplaced": Entry(Stage.DECISION, _HEAD, f"wait for its first decision, or {_HEAD_LOG}"),
    "HeadNodeAway": Entry(Stage.DECISION, "the node of head pod {pod}", "wait for the node, or delete the head pod"),
    "AutoscalerNotRunning": Entry(Stage.DECISION, _HEAD, _HEAD_LOG),
    "RecordOfAnotherCluster": Entry(Stage.DECISION, _HEAD, f"wait for its first decision, or {_HEAD_LOG}"),
    "ReplicasRewritten": Entry(
        Stage.DECISION,
        _writer,
        _replicas_fix,
    ),
    # fair sharing of TrainingJobs
    "InsufficientResources": Entry(Stage.DECISION, _capacity_holder, _CAPACITY_FIX),
    "InsufficientGPU": Entry(Stage.DECISION, _capacity_holder, _CAPACITY_FIX),
    "Fragmented": Entry(
        Stage.DECISION, "free capacity that no single node has", "use smaller trainers, or move other pods"
    ),
    "Unsatisfiable": Entry(Stage.DEMAND, _unsatisfiable_holder, _unsatisfiable_fix, is_permanent=True),
    "HigherPriority": Entry(Stage.DECISION, _job_holder, "set a higher priorityClassName, or wait until that job ends"),
    "HeldByRankZero": Entry(
        Stage.DECISION,
        _job_holder,
        "suspend that job until this one has started (spec.suspend: true), add a node, or use smaller trainers",
    ),
    "CapacityReserved": Entry(
        Stage.DECISION, _job_holder, "wait until the reservation lapses, or set a higher priorityClassName"
    ),
    "CoolingDown": Entry(Stage.DECISION, _job_holder, "wait until the cooldown ends"),
    "AwaitingCapacity": Entry(
        Stage.DECISION, "terminating pods, which still use the capacity", "wait until these pods are gone"
    ),
    "TooManyShapes": Entry(
        Stage.DECISION,
        "the number of different pods that wait in the namespace",
        "let its jobs and pods use the same requests, selector, affinity and tolerations",
    ),
    "CapacityUnknown": Entry(
        Stage.DECISION, "the permissions of the operator", "set rbac.readNodes of the chart to true"
    ),
    "NotAdmitted": Entry(
        Stage.DECISION,
        "the sharing pass of the operator",
        "wait for the next pass; if it persists, look at the operator's log",
    ),
    "GangTimeout": Entry(
        Stage.DECISION,
        "the cause that the message names, and the back-off after it",
        "remove the cause; the job is admitted again at the time in the message",
    ),
    # pods
    "QuotaExceeded": Entry(Stage.PODS, _quota_holder, _quota_fix),
    "CreationForbidden": _CREATION,
    "CreationInvalid": Entry(Stage.PODS, _invalid_holder, _invalid_fix),
    "NameTaken": Entry(
        Stage.PODS,
        "another object that has the name",
        "delete that object, or create the {kind} under another name",
    ),
    "ImagePullFailed": Entry(
        Stage.PODS,
        "the image of {container}",
        "check name and tag of the image, its pull secret, and that nodes reach the registry",
    ),
    "CrashLoop": Entry(
        Stage.PODS, "{container} of pod {pod}", "kubectl logs {pod} -n {namespace} --all-containers --previous"
    ),
    "EndedBeforeReady": Entry(
        Stage.PODS,
        "{container} of pod {pod}",
        f"{_DESCRIBE}, and kubectl logs {{pod}} -n {{namespace}} --all-containers; a change of the spec ends the delay",
    ),
    "ContainerConfigError": Entry(Stage.PODS, _config_holder, _config_fix),
    HEAD_NOT_READY: Entry(Stage.PODS, "head pod {pod}", f"{_DESCRIBE}; workers start when it is ready"),
    "NoPodCreated": Entry(Stage.PODS, _OPERATOR, _OPERATOR_FIX),
    PODS_MISSING: Entry(Stage.PODS, _OPERATOR, f"wait; if it persists, {_OPERATOR_FIX}"),
    "WaitingForPods": Entry(
        Stage.PODS,
        "pods that are starting",
        f"wait; if it persists, {_DESCRIBE}, and look at the log of init container wait-gcs-ready",
    ),
    "NotInitialized": Entry(Stage.PODS, "init containers, images or volumes of the pods", _DESCRIBE),
    "ContainersNotStarted": Entry(Stage.PODS, "images or volumes of the pods", _DESCRIBE),
    "NeverRegistered": Entry(
        Stage.PODS,
        "the Ray container, which does not reach the head",
        "kubectl logs {pod} -n {namespace}; check DNS and network policies",
    ),
    "BackingOff": Entry(
        Stage.PODS, "the back-off after a failure", "wait until the time in the message, or correct the cause"
    ),
    "WaitingForMaster": Entry(Stage.PODS, "the master pod", _DESCRIBE),
    "WaitingForPservers": Entry(Stage.PODS, "the parameter servers", _DESCRIBE),
    "PodTerminating": Entry(Stage.PODS, "a terminating pod of the same name", "wait until it is gone"),
    "BelowMinimum": Entry(Stage.PODS, "pods that are starting", f"wait; if it persists, {_DESCRIBE}"),
    # nodes
    "Unschedulable": Entry(Stage.NODES, _scheduling_holder, _scheduling_fix),
    "SchedulingGated": Entry(Stage.NODES, _gates_holder, _gates_fix),
    "NotScheduled": Entry(
        Stage.NODES, "the scheduler of the pods", "check schedulerName, and that this scheduler runs"
    ),
    NODE_NOT_READY: Entry(
        Stage.NODES,
        "node {node}",
        "kubectl describe node {node}; the pods are replaced when the node is ready or deleted",
    ),
    # ends of a TrainingJob
    "BackoffLimitExceeded": _FAILED,
    "MaxFailedPercentExceeded": _FAILED,
    "AllTrainersFailed": _FAILED,
    "DeadlineExceeded": _FAILED,
    "PodFailed": _FAILED,
}

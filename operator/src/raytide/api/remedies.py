"""Remedies: for each reason the stage that it stops, what holds the workload up there, and the cure.

The reasons are those of conditions and of the two decision records, and, where neither has one, those defined below. Holders
are taken from the message of the reason by the patterns in this module, because Kubernetes' messages have a stable form. A
reason without an entry gets a remedy that refers to the message. Conditions, events and explanations take holder and cure from
here, so that they are the same in all of them; the table of docs/why.md has every entry. Pure; called by
raycluster/causes.py, trainingjob/waiting_condition.py, explain/raycluster.py and explain/trainingjob.py (SC:S21).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from raytide.api.conditions import cut


class Stage(StrEnum):
    """A step from the demand to running pods; a blocker at one of them stops all that follow."""

    DEMAND = "demand"
    DECISION = "decision"
    WANTED = "wanted"
    PODS = "pods"
    NODES = "nodes"


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


@dataclass(frozen=True, slots=True)
class Facts:
    """What the texts of a remedy may name."""

    kind: str
    namespace: str
    name: str
    group: str = ""
    message: str = ""
    pod: str = ""
    """A pod that the reason concerns, such as one that crashes; empty if there is none."""
    detail: str = ""
    """What a message does not have: the names of scheduling gates, another controller, a limit."""

    @property
    def values(self) -> Mapping[str, str]:
        """The fields of the texts below."""
        words = {"kind": self.kind, "namespace": self.namespace, "name": self.name, "detail": self.detail}
        return {
            **words,
            "group": self.group or "the workload",
            "pod": self.pod or "POD",
            "container": _first(r"container (\S+?):", self.message) or "the container",
        }


Text = str | Callable[[Facts], str]


@dataclass(frozen=True, slots=True)
class Remedy:
    """Holder and cure of one reason; `{...}` are fields of `Facts.values`."""

    stage: Stage
    holder: Text
    cure: Text
    is_permanent: bool = False
    stops_all: bool = False

    def holder_in(self, facts: Facts) -> str:
        """What holds the workload up, with these facts."""
        return _text(self.holder, facts)

    def cure_in(self, facts: Facts) -> str:
        """What to do about it, with these facts."""
        return _text(self.cure, facts)


def remedy_of(reason: str) -> Remedy:
    """The remedy of that reason; for an unknown one, a remedy that refers to the message."""
    return REMEDIES.get(reason, _OTHER)


# --- in conditions and events --------------------------------------------------------------------------------------------

REMEDY_MARK: Final = "; held by: "
"""Begins the part of a condition's message that has holder and cure."""
LONGEST_NOTE: Final = 1024
"""Of an event's note, in bytes, as the API server has it."""
LONGEST_REMEDY: Final = 400
"""Of holder and cure in an event whose message is too long, in characters."""


def held_by(holder: str, cure: str) -> str:
    """Holder and cure as conditions append them to the cause."""
    return f"{REMEDY_MARK}{holder}; cure: {cure}"


def remedy_sentence(reason: str, facts: Facts) -> str:
    """Holder and cure as conditions append them; empty for a reason without a remedy of its own."""
    if reason not in REMEDIES:
        return ""
    remedy = remedy_of(reason)
    return held_by(remedy.holder_in(facts), remedy.cure_in(facts))


def without_remedy(message: str) -> str:
    """The cause alone: a condition's message without the holder and cure that were appended to it."""
    return message.partition(REMEDY_MARK)[0]


def note_with_cure(message: str) -> str:
    """A condition's message as an event's note; one that is too long is cut before its first holder and cure, and after them."""
    text, mark, remedies = message.partition(REMEDY_MARK)
    if not mark or len(message.encode()) <= LONGEST_NOTE:
        return message
    remedy = cut(mark + remedies.partition("; group ")[0], LONGEST_REMEDY)
    space = LONGEST_NOTE - len(remedy.encode()) - len("…".encode())
    is_cut = len(text.encode()) > space
    return text.encode()[:space].decode(errors="ignore") + ("…" if is_cut else "") + remedy


def _text(text: Text, facts: Facts) -> str:
    return text.format_map(facts.values) if isinstance(text, str) else text(facts)


# --- texts that depend on the message --------------------------------------------------------------------------------------


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""


def _quota_holder(facts: Facts) -> str:
    if tenant := _first(r"\btenant (\S+) has\b", facts.message):
        return f"the nominal quota and borrowing limit of tenant {tenant}"
    quota = _first(r"exceeded quota: ([^,\s]+)", facts.message) or _first(r"\bquota (\S+) has\b", facts.message)
    return f"ResourceQuota {quota.rpartition('/')[2]}" if quota else "a ResourceQuota"


def _quota_cure(facts: Facts) -> str:
    if _first(r"\btenant (\S+) has\b", facts.message):
        return "raise the quota of the tenant in --tenants of the operator, or wait until jobs of the tenant end"
    quota = _quota_holder(facts)
    return f"raise {quota} in namespace {facts.namespace}, lower the requests, or delete pods that it counts"


_REJECTIONS: Final = (
    (r'User "([^"]+)" cannot ', "the permissions of {}", "grant the permission that the message names to {}"),
    (
        r'admission webhook "([^"]+)"',
        "admission webhook {}",
        "change the pod template as the message of webhook {} asks",
    ),
    (
        r"no PriorityClass with name (\S+)",
        "PriorityClass {}",
        "create PriorityClass {}, or correct priorityClassName",
    ),
    (
        r"violates PodSecurity \"([^\"]+)\"",
        "Pod Security level {} of the namespace",
        "change the pod template as Pod Security {} asks, or the level of the namespace",
    ),
    (r"service account (\S+) was not found", "service account {}", "create service account {}"),
    (
        r"error looking up service account (\S+):",
        "service account {}",
        "create service account {}, or correct serviceAccountName",
    ),
)
"""Pattern of the API server's message, holder and cure."""


def _rejection(facts: Facts) -> tuple[str, str]:
    for pattern, holder, cure in _REJECTIONS:
        if found := _first(pattern, facts.message):
            return holder.format(found), cure.format(found)
    return "the API server", "act on its message: a policy, a webhook or a missing permission rejects the pods"


_INVALID_FIELD: Final = r"^([\w.-]+ \"[^\"]*\") is invalid: \[?([^\s:]+): "


def _invalid_holder(facts: Facts) -> str:
    found = re.search(_INVALID_FIELD, facts.message)
    return f"field {found[2]} of {found[1]}" if found else "a field of the object"


def _invalid_cure(facts: Facts) -> str:
    found = re.search(_INVALID_FIELD, facts.message)
    return f"correct {found[2] if found else 'the field that the message names'} in the spec, from which the operator creates the object"


_SCHEDULING: Final = (
    (
        r"Insufficient ([\w./-]*\w)",
        "free {} on the nodes",
        "add nodes with free {}, lower the request, or end pods that use it",
    ),
    (
        r"untolerated taint(?:\(s\))? ?\{([^:}\s]+)",
        "the taint {} of nodes",
        "add a toleration for taint {} to the pod template, or nodes without it",
    ),
    (
        r"(didn't match Pod's node affinity/selector)",
        "nodeSelector or affinity of the pod template",
        "label nodes as nodeSelector and affinity require, or change these fields of the pod template",
    ),
    (r"node\(s\) (were unschedulable)", "cordoned nodes", "uncordon nodes (kubectl uncordon), or add nodes"),
    (
        r"(unbound immediate PersistentVolumeClaims|persistentvolumeclaim \S+ not found)",
        "a PersistentVolumeClaim of the pod",
        "create the PersistentVolumeClaim, or its volume",
    ),
)
"""Parts of kube-scheduler's message, holder and cure."""


def _scheduling(facts: Facts) -> tuple[list[str], list[str]]:
    holders, cures = [], []
    for pattern, holder, cure in _SCHEDULING:
        names = list(dict.fromkeys(re.findall(pattern, facts.message)))[:3]
        if names:
            holders.append(holder.format(" and ".join(names)))
            cures.append(cure.format(" and ".join(names)))
    return holders, cures


def _scheduling_holder(facts: Facts) -> str:
    return ", ".join(_scheduling(facts)[0]) or "kube-scheduler, which finds no node"


def _scheduling_cure(facts: Facts) -> str:
    return "; ".join(_scheduling(facts)[1]) or f"kubectl describe pod {facts.values['pod']} -n {facts.namespace}"


def _gates_holder(facts: Facts) -> str:
    if "kueue.x-k8s.io" in facts.detail:
        return "Kueue, which has not admitted the workload"
    return (
        f"the controller of scheduling gate {facts.detail}"
        if facts.detail
        else "the controller that set the scheduling gate"
    )


def _gates_cure(facts: Facts) -> str:
    if "kueue.x-k8s.io" in facts.detail:
        return f"kubectl get workloads -n {facts.namespace}: its ClusterQueue needs free quota"
    return "wait until that controller removes the gate, or check that it runs"


def _other_job(facts: Facts) -> str:
    held = _first(r"(?:held|reserved) (?:by|for) (.+?)(?:, which| \(first)", facts.message)
    return held or "other TrainingJobs"


def _capacity_holder(facts: Facts) -> str:
    if "left of the usable capacity" in facts.message:
        return "the usable capacity of all nodes, which --max-load of the operator may limit"
    if "reserved for pending pods of other workloads" in facts.message:
        return "pending pods of other workloads, which free capacity is reserved for"
    return "pods on the nodes where it may run"


_NO_NODE: Final = ("no node matches", "there are no nodes")


def _unsatisfiable_holder(facts: Facts) -> str:
    return "the nodes that there are" if facts.message.startswith(_NO_NODE) else "the size of the nodes"


def _unsatisfiable_cure(facts: Facts) -> str:
    if facts.message.startswith(_NO_NODE):
        return "add such a node; where nodes are added on demand, set --node-autoscaler of the operator to present"
    return "add a larger node, or lower the requests of the trainers"


def _replicas_cure(facts: Facts) -> str:
    if facts.kind == "TrainingJob":
        return "stop that client from writing replicas, raise min-instance, or set scaling.enabled to false"
    return "stop that client from writing replicas, or set minReplicas"


def _suspension_holder(facts: Facts) -> str:
    return f"Kueue, queue {facts.detail}" if facts.detail else "spec.suspend"


def _suspension_cure(facts: Facts) -> str:
    if facts.detail:
        return f"kubectl get workloads -n {facts.namespace}: Kueue resumes it when queue {facts.detail} has free quota"
    resumed = "set spec.suspend to false"
    return f"{resumed}; removing the field does not resume a RayCluster" if facts.kind == "RayCluster" else resumed


# --- the table ---------------------------------------------------------------------------------------------------------------

_SPEC: Final = "the spec of {kind} {name}"
_DESCRIBE: Final = "kubectl describe pod {pod} -n {namespace}"
_HEAD: Final = "container autoscaler of head pod {pod}"
_HEAD_LOG: Final = "kubectl logs {pod} -c autoscaler -n {namespace}"
_OPERATOR: Final = "the operator"
_OPERATOR_CURE: Final = "check that the operator runs, watches namespace {namespace} and has its permissions: its log and /readyz name what is missing"
_CAPACITY_CURE: Final = (
    "free capacity, add nodes or use smaller trainers; raytide plan --explain {namespace}/{name} has the details"
)
_INVALID: Final = Remedy(
    Stage.WANTED, _SPEC, "correct the fields that the message names", is_permanent=True, stops_all=True
)
_FAILED: Final = Remedy(
    Stage.WANTED,
    "the job, which has failed",
    "correct the cause, delete the job and create it again",
    is_permanent=True,
    stops_all=True,
)
_OTHER: Final = Remedy(
    Stage.PODS, "see the message", "act on the message; kubectl describe {kind} {name} -n {namespace}"
)
_CREATION: Final = Remedy(Stage.PODS, lambda facts: _rejection(facts)[0], lambda facts: _rejection(facts)[1])

REMEDIES: Final[Mapping[str, Remedy]] = {
    # whole workloads
    TERMINATING: Remedy(
        Stage.WANTED, "{detail}", "wait until it is gone, then create it again", is_permanent=True, stops_all=True
    ),
    MANAGED_BY_OTHER: Remedy(
        Stage.WANTED,
        "controller {detail}",
        "ask controller {detail}; for Raytide, create the object without spec.managedBy",
        stops_all=True,
    ),
    NOT_RECONCILED: Remedy(Stage.WANTED, _OPERATOR, _OPERATOR_CURE, stops_all=True),
    SUSPENDED: Remedy(Stage.WANTED, _suspension_holder, _suspension_cure, stops_all=True),
    GROUP_SUSPENDED: Remedy(Stage.WANTED, "suspend of group {group}", "set suspend of group {group} to false"),
    CANNOT_BE_PARSED: _INVALID,
    "InvalidRayClusterSpec": _INVALID,
    "InvalidRayClusterMetadata": Remedy(
        Stage.WANTED, _SPEC, "create it under another name", is_permanent=True, stops_all=True
    ),
    "InvalidRayClusterStatus": _INVALID,
    "InvalidSpec": _INVALID,
    # demand and the autoscaler's decision
    "NoFittingGroup": Remedy(
        Stage.DEMAND,
        "the worker groups in the spec",
        "add a worker group with such nodes, or request less per task, actor or bundle",
        is_permanent=True,
    ),
    "ConstraintUnmet": Remedy(
        Stage.DEMAND,
        "maxReplicas of the worker groups",
        "raise maxReplicas, or request less with request_resources()",
        is_permanent=True,
    ),
    "NodeBusy": Remedy(
        Stage.DEMAND,
        "work on the live nodes that could run it",
        "wait until work on these nodes ends, or add a worker group with the resources and labels of the message",
    ),
    "TopologyUnmet": Remedy(
        Stage.DEMAND,
        "the labels and maxReplicas of the worker groups",
        "give each value of the label of the message a worker group with that label in its field labels, or raise "
        "maxReplicas of such groups",
    ),
    "InvalidGroup": Remedy(Stage.DECISION, _SPEC, "correct the field that the message names", is_permanent=True),
    "MaxReached": Remedy(
        Stage.DECISION,
        "maxReplicas of group {group}",
        "raise maxReplicas of group {group}, or wait until work in it ends",
    ),
    REPLICAS_CLAMPED: Remedy(Stage.DECISION, "{detail}", "raise it, or lower the requested size"),
    "UpscalingLimited": Remedy(
        Stage.DECISION, "autoscalerOptions.upscalingMode: Conservative", "wait, or set upscalingMode to Default"
    ),
    "Backoff": Remedy(
        Stage.DECISION,
        "the back-off of group {group} after a failure",
        "wait until the time in the message, or remove the cause: kubectl get events -n {namespace}",
    ),
    "ScaleGated": Remedy(
        Stage.DECISION,
        "the controller that gated group {group}",
        "wait until that controller removes its entry from scaleStrategy.scaleGate, or check that it runs; for Kueue: "
        "kubectl get workloads -n {namespace}",
    ),
    "HeadDown": Remedy(
        Stage.DECISION,
        "the head pod",
        "kubectl logs {pod} -n {namespace}: nothing is scaled until Ray's head node runs",
        stops_all=True,
    ),
    AUTOSCALER_PAUSED: Remedy(
        Stage.DECISION,
        "annotation raytide.io/autoscaler: paused",
        "kubectl annotate raycluster {name} -n {namespace} raytide.io/autoscaler-",
    ),
    "HeadMissing": Remedy(Stage.DECISION, "the head pod, which does not exist", "wait for the next head pod"),
    "HeadReplaced": Remedy(Stage.DECISION, _HEAD, f"wait for its first decision, or {_HEAD_LOG}"),
    "HeadNodeAway": Remedy(Stage.DECISION, "the node of head pod {pod}", "wait for the node, or delete the head pod"),
    "AutoscalerNotRunning": Remedy(Stage.DECISION, _HEAD, _HEAD_LOG),
    "RecordOfAnotherCluster": Remedy(Stage.DECISION, _HEAD, f"wait for its first decision, or {_HEAD_LOG}"),
    "ReplicasRewritten": Remedy(
        Stage.DECISION,
        "{detail}, which also writes replicas",
        _replicas_cure,
    ),
    # fair sharing of TrainingJobs
    "InsufficientResources": Remedy(Stage.DECISION, _capacity_holder, _CAPACITY_CURE),
    "InsufficientGPU": Remedy(Stage.DECISION, _capacity_holder, _CAPACITY_CURE),
    "Fragmented": Remedy(
        Stage.DECISION, "free capacity that no single node has", "use smaller trainers, or move other pods"
    ),
    "Unsatisfiable": Remedy(Stage.DEMAND, _unsatisfiable_holder, _unsatisfiable_cure, is_permanent=True),
    "HigherPriority": Remedy(Stage.DECISION, _other_job, "set a higher priorityClassName, or wait until that job ends"),
    "HeldByRankZero": Remedy(
        Stage.DECISION,
        _other_job,
        "suspend that job until this one has started (spec.suspend: true), add a node, or use smaller trainers",
    ),
    "CapacityReserved": Remedy(
        Stage.DECISION, _other_job, "wait until the reservation lapses, or set a higher priorityClassName"
    ),
    "CoolingDown": Remedy(Stage.DECISION, _other_job, "wait until the cooldown ends"),
    "AwaitingCapacity": Remedy(
        Stage.DECISION, "terminating pods, which still use the capacity", "wait until these pods are gone"
    ),
    "TooManyShapes": Remedy(
        Stage.DECISION,
        "the number of different pods that wait in the namespace",
        "let its jobs and pods use the same requests, selector, affinity and tolerations",
    ),
    "CapacityUnknown": Remedy(
        Stage.DECISION, "the permissions of the operator", "set rbac.readNodes of the chart to true"
    ),
    "NotAdmitted": Remedy(
        Stage.DECISION,
        "the sharing pass of the operator",
        "wait for the next pass; if it persists, look at the operator's log",
    ),
    "GangTimeout": Remedy(
        Stage.DECISION,
        "the cause that the message names, and the back-off after it",
        "remove the cause; the job is admitted again at the time in the message",
    ),
    # pods
    "QuotaExceeded": Remedy(Stage.PODS, _quota_holder, _quota_cure),
    "CreationForbidden": _CREATION,
    "CreationInvalid": Remedy(Stage.PODS, _invalid_holder, _invalid_cure),
    "NameTaken": Remedy(
        Stage.PODS,
        "another object that has the name",
        "delete that object, or create the {kind} under another name",
    ),
    "ImagePullFailed": Remedy(
        Stage.PODS,
        "the image of {container}",
        "check name and tag of the image, its pull secret, and that nodes reach the registry",
    ),
    "CrashLoop": Remedy(
        Stage.PODS, "{container} of pod {pod}", "kubectl logs {pod} -n {namespace} --all-containers --previous"
    ),
    "EndedBeforeReady": Remedy(
        Stage.PODS,
        "{container} of pod {pod}",
        f"{_DESCRIBE}, and kubectl logs {{pod}} -n {{namespace}} --all-containers; a change of the spec ends the delay",
    ),
    "ContainerConfigError": Remedy(
        Stage.PODS, "an object that {container} refers to", "create the object that the message names"
    ),
    HEAD_NOT_READY: Remedy(Stage.PODS, "head pod {pod}", f"{_DESCRIBE}; workers start when it is ready"),
    "NoPodCreated": Remedy(Stage.PODS, _OPERATOR, _OPERATOR_CURE),
    PODS_MISSING: Remedy(Stage.PODS, _OPERATOR, f"wait; if it persists, {_OPERATOR_CURE}"),
    "WaitingForPods": Remedy(
        Stage.PODS,
        "pods that are starting",
        f"wait; if it persists, {_DESCRIBE}, and look at the log of init container wait-gcs-ready",
    ),
    "NotInitialized": Remedy(Stage.PODS, "init containers, images or volumes of the pods", _DESCRIBE),
    "ContainersNotStarted": Remedy(Stage.PODS, "images or volumes of the pods", _DESCRIBE),
    "NeverRegistered": Remedy(
        Stage.PODS,
        "the Ray container, which does not reach the head",
        "kubectl logs {pod} -n {namespace}; check DNS and network policies",
    ),
    "BackingOff": Remedy(
        Stage.PODS, "the back-off after a failure", "wait until the time in the message, or correct the cause"
    ),
    "WaitingForMaster": Remedy(Stage.PODS, "the master pod", _DESCRIBE),
    "WaitingForPservers": Remedy(Stage.PODS, "the parameter servers", _DESCRIBE),
    "PodTerminating": Remedy(Stage.PODS, "a terminating pod of the same name", "wait until it is gone"),
    "BelowMinimum": Remedy(Stage.PODS, "pods that are starting", f"wait; if it persists, {_DESCRIBE}"),
    # nodes
    "Unschedulable": Remedy(Stage.NODES, _scheduling_holder, _scheduling_cure),
    "SchedulingGated": Remedy(Stage.NODES, _gates_holder, _gates_cure),
    "NotScheduled": Remedy(
        Stage.NODES, "the scheduler of the pods", "check schedulerName, and that this scheduler runs"
    ),
    NODE_NOT_READY: Remedy(
        Stage.NODES,
        "node {detail}",
        "kubectl describe node {detail}; the pods are replaced when the node is ready or deleted",
    ),
    # ends of a TrainingJob
    "BackoffLimitExceeded": _FAILED,
    "MaxFailedPercentExceeded": _FAILED,
    "AllTrainersFailed": _FAILED,
    "DeadlineExceeded": _FAILED,
    "PodFailed": _FAILED,
}

"""Workloads whose explanation is known: one per cause, for both kinds.

Each is made as it comes about: the operator's own functions plan and write the status for pods and rejections as Kubernetes
shows them, so that the conditions are real. Used by the tests of the explanation, of its JSON and of `raytide why`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from raytide.api import constants
from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, encode_record
from raytide.api.conditions import timestamp
from raytide.api.config import AutoscalerMode, ClusterConfig
from raytide.api.pod import ContainerView, PodCondition, PodView
from raytide.api.raycluster import RayCluster
from raytide.diagnosis.catalogue import MAX_LOAD, NODES
from raytide.diagnosis.model import Diagnosis
from raytide.explain.explain import explain
from raytide.explain.model import RAYCLUSTER, TRAININGJOB, AnyPod, Explanation, NodeFacts, Objects, Warned
from raytide.raycluster.desired_replicas import scaling_of
from raytide.raycluster.observed import Observed, PendingRetry
from raytide.raycluster.plan import plan
from raytide.raycluster.status import status
from support.builders import CLUSTER_UID, NOT_READY, group, head, head_service, pending, pod, raycluster, waiting
from support.job_world import JobWorld

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SINCE = "2026-01-01T12:00:00Z"
AUTOSCALER = (ContainerView(constants.AUTOSCALER_CONTAINER, "running"),)
HEAD = head(containers=AUTOSCALER)
QUOTA = 'pods "demo-cpu-worker-*" is forbidden: exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3'
FORBIDDEN = (
    'pods is forbidden: User "system:serviceaccount:raytide:raytide" cannot create resource "pods" in API group "" in the '
    'namespace "default"'
)
UNSCHEDULABLE = PodCondition("False", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.")
TAINTED = PodCondition(
    "False",
    "Unschedulable",
    "0/3 nodes are available: 3 node(s) had untolerated taint {gpu: yes}. no new claims to deallocate",
)
SELECTED = PodCondition(
    "False", "Unschedulable", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
)
GATED = PodCondition("False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
SELECTING = group(
    template={"spec": {**group()["template"]["spec"], "nodeSelector": {"zone": "a", "accelerator": "tpu"}}}
)


@dataclass(frozen=True)
class Case:
    """Objects and what has to be said about them."""

    objects: Objects
    stage: str
    reason: str
    holder: str
    fix: str
    exit_code: int = 3
    group: str = ""
    message: str = ""
    """A part of it."""
    now: datetime = field(default=NOON)

    def explained(self) -> Explanation:
        """The explanation."""
        return explain(self.objects, self.now)


# --- RayClusters ---------------------------------------------------------------------------------------------------------------


def reconciled(
    obj: dict[str, Any],
    *pods: PodView,
    retries: tuple[PendingRetry, ...] = (),
    times: int = 2,
    mode: AutoscalerMode = "raytide",
) -> dict[str, Any]:
    """The RayCluster with the status that the operator writes for it at noon."""
    for _ in range(times):
        cluster = RayCluster.parse(obj)
        observed = Observed(pods=pods, services=(head_service(),), pending_retries=retries, seen_at=NOON)
        scaling = scaling_of(cluster, observed, mode)
        todo = plan(cluster, observed, ClusterConfig(), str)
        if todo.is_reported:
            obj = {**obj, "status": status(cluster, observed, todo, (), NOON, scaling=scaling)}
    return obj


def of_cluster(
    *pods: PodView,
    spec: dict[str, Any] | None = None,
    groups: tuple[dict[str, Any], ...] = (),
    record: DecisionRecord | None = None,
    metadata: dict[str, Any] | None = None,
    retries: tuple[PendingRetry, ...] = (),
    is_reconciled: bool = True,
    **more: Any,
) -> Objects:
    """What can be read of a RayCluster with these pods."""
    obj = raycluster(*(groups or (group(replicas=2),)), **(spec or {}))
    obj["metadata"] |= {"creationTimestamp": SINCE, **(metadata or {})}
    if record is not None:
        obj["spec"]["enableInTreeAutoscaling"] = True
        text = encode_record(record)
        obj["metadata"].setdefault("annotations", {})[constants.AUTOSCALER_DECISION_ANNOTATION] = text
    if is_reconciled:
        obj = reconciled(obj, *pods, retries=retries)
    return Objects(RAYCLUSTER, obj, pods, **more)


def decided(
    *, cluster: tuple[Diagnosis, ...] = (), head_uid: str = HEAD.uid, **groups: GroupDecision
) -> DecisionRecord:
    """A record of the autoscaler."""
    return DecisionRecord(CLUSTER_UID, head_uid, at=NOON, groups=groups, why=cluster)


def retry(group_name: str, message: str, reason: str = constants.FAILED_TO_CREATE_WORKER_POD) -> PendingRetry:
    """A rejection by the API server."""
    return PendingRetry(group_name, reason, message, 5.0)


def worker(index: int, **fields: Any) -> PodView:
    """A ready worker."""
    return pod(f"demo-cpu-worker-{index:05d}", **fields)


def waiting_worker(index: int, **fields: Any) -> PodView:
    """A worker that does not run."""
    return pending(f"demo-cpu-worker-{index:05d}", **fields)


def contended() -> Objects:
    """Another client has been writing replicas for eleven seconds."""
    objects = of_cluster(HEAD, worker(0), worker(1), record=decided(cpu=GroupDecision(2)), is_reconciled=False)
    obj = objects.obj
    obj["spec"]["workerGroupSpecs"][0]["replicas"] = 1
    fields = {"f:spec": {"f:workerGroupSpecs": {'k:{"groupName":"cpu"}': {"f:replicas": {}}}}}
    at = timestamp(NOON - timedelta(seconds=11))
    obj["metadata"]["managedFields"] = [{"manager": "argocd", "operation": "Update", "time": at, "fieldsV1": fields}]
    differs = {
        "type": constants.REPLICAS_CONTENDED,
        "status": "False",
        "reason": "ReplicasDiffer",
        "lastTransitionTime": at,
    }
    obj["status"] = {"conditions": [differs]}
    return replace(objects, obj=reconciled(obj, HEAD, worker(0), worker(1)))


SHAPES = Diagnosis("NoFittingGroup", 2).having(shapes="{CPU: 1, GPU: 1} x 1, {CPU: 8} x 1", most="{CPU: 1, GPU: 0}")
AT_MAXIMUM = Diagnosis("MaxReached", 2).having(shapes="{CPU: 1} x 2", maximum="2")


def _why(*reasons: Diagnosis) -> DecisionRecord:
    return decided(cpu=GroupDecision(2, why=reasons))


RAYCLUSTERS: dict[str, Callable[[], Case]] = {
    "the demand fits no group": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), record=decided(cluster=(SHAPES,), cpu=GroupDecision(2))),
        "demand", "NoFittingGroup", "the worker groups in the spec", "add a worker group", 4, message="{CPU: 8} x 1",
    ),
    "request_resources asks for more than the groups may have": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), record=decided(cluster=(Diagnosis("ConstraintUnmet", 1, "requests more"),), cpu=GroupDecision(2))),
        "demand", "ConstraintUnmet", "maxReplicas of the worker groups", "request less", 4,
    ),
    "only busy live nodes could run the demand": lambda: Case(
        of_cluster(
            HEAD, worker(0), worker(1), record=decided(cluster=(Diagnosis("NodeBusy", 3).having(shapes="{CPU: 1} x 3"),), cpu=GroupDecision(2))
        ),
        "demand", "NodeBusy", "work on the live nodes that could run it", "wait until work on these nodes ends", message="{CPU: 1} x 3",
    ),
    "a quota controller has gated the group": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), record=_why(Diagnosis("ScaleGated", 2, "scaleStrategy.scaleGate has example.com/quota"))),
        "decision", "ScaleGated", "the controller that gated group cpu", "wait until that controller removes its entry", group="cpu",
        message="example.com/quota",
    ),
    "no value of a label has the nodes of a topology strategy": lambda: Case(
        of_cluster(
            HEAD, worker(0), worker(1), record=decided(cluster=(Diagnosis("TopologyUnmet", 3, "pending: {CPU: 1} x 3"),), cpu=GroupDecision(2))
        ),
        "demand", "TopologyUnmet", "the labels and maxReplicas of the worker groups", "with that label in its field labels", message="{CPU: 1} x 3",
    ),
    "a group of the spec cannot be used": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), record=_why(Diagnosis("InvalidGroup", 1, "resources: no number"))),
        "decision", "InvalidGroup", "the spec of RayCluster demo", "correct the field", 4, "cpu",
    ),
    "a group is at its maximum": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), groups=(group(replicas=2, high=2),), record=_why(AT_MAXIMUM)),
        "decision", "MaxReached", "maxReplicas of group cpu", "raise maxReplicas of group cpu", group="cpu", message="{CPU: 1} x 2",
    ),
    "a user asks for more than the maximum": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), groups=(group(replicas=9, high=2),)),
        "decision", "ReplicasClamped", "maxReplicas 2 of group cpu", "raise the maximum", group="cpu", message="9 are requested",
    ),
    "upscaling is conservative": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), record=_why(Diagnosis("UpscalingLimited", 3, "deferred nodes: 3"))),
        "decision", "UpscalingLimited", "autoscalerOptions.upscalingMode: Conservative", "Default", group="cpu",
    ),
    "a group is in its back-off": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), record=_why(Diagnosis("Backoff", 1, "one replica is tried at 12:05"))),
        "decision", "Backoff", "the back-off of group cpu", "wait until the time", group="cpu",
    ),
    "Ray's head node is down": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), record=decided(cluster=(Diagnosis("HeadDown", 1, "the GCS does not answer"),), cpu=GroupDecision(2))),
        "decision", "HeadDown", "the head pod", "kubectl logs demo-head-aaaaa",
    ),
    "the autoscaler is paused": lambda: Case(
        of_cluster(
            HEAD, worker(0), worker(1), record=_why(AT_MAXIMUM), metadata={"annotations": {constants.AUTOSCALER_ANNOTATION: "paused"}}
        ),
        "decision", "AutoscalerPaused", "annotation raytide.io/autoscaler: paused", "kubectl annotate raycluster demo -n default raytide.io/autoscaler-",
    ),
    "the autoscaler does not run": lambda: Case(
        of_cluster(head(), worker(0), worker(1), record=decided(cpu=GroupDecision(2))),
        "decision", "AutoscalerNotRunning", "container autoscaler of head pod demo-head-aaaaa", "kubectl logs demo-head-aaaaa -c autoscaler",
    ),
    "the head was replaced": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), record=decided(cpu=GroupDecision(2), head_uid="uid-of-before")),
        "decision", "HeadReplaced", "container autoscaler of head pod demo-head-aaaaa", "wait for its first decision",
    ),
    "another client writes replicas": lambda: Case(
        contended(), "decision", "ReplicasRewritten", "argocd, which also writes replicas", "stop that client",
    ),
    "a quota is used up": lambda: Case(
        of_cluster(HEAD, worker(0), retries=(retry("cpu", QUOTA),)),
        "pods", "QuotaExceeded", "ResourceQuota few", "raise ResourceQuota few in namespace default", group="cpu", message="exceeded quota",
    ),
    "the operator may not create pods": lambda: Case(
        of_cluster(HEAD, worker(0), retries=(retry("cpu", FORBIDDEN),)),
        "pods", "CreationForbidden", "the permissions of system:serviceaccount:raytide:raytide", "grant the permission", group="cpu",
    ),
    "a webhook rejects the pods": lambda: Case(
        of_cluster(HEAD, worker(0), retries=(retry("cpu", 'admission webhook "policy.example.com" denied the request: no'),)),
        "pods", "CreationForbidden", "admission webhook policy.example.com", "webhook policy.example.com", group="cpu",
    ),
    "the pods are invalid": lambda: Case(
        of_cluster(HEAD, worker(0), retries=(retry("cpu", 'Pod "demo-cpu-worker-*" is invalid: spec.containers[1].name: Duplicate value: "ray"'),)),
        "pods", "CreationInvalid", 'field spec.containers[1].name of Pod "demo-cpu-worker-*"', "correct spec.containers[1].name", group="cpu",
    ),
    "a service is invalid": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), retries=(retry("", 'Service "demo-head-svc" is invalid: [spec.ports[0].name: Duplicate value: "a", spec.type: b]', constants.FAILED_TO_CREATE_SERVICE),)),
        "pods", "CreationInvalid", 'field spec.ports[0].name of Service "demo-head-svc"', "correct spec.ports[0].name",
    ),
    "a service cannot be created": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), retries=(retry("(head service)", "services is forbidden: no", constants.FAILED_TO_CREATE_SERVICE),)),
        "pods", "CreationForbidden", "the API server", "act on its message",
    ),
    "no node has enough CPUs": lambda: Case(
        of_cluster(HEAD, worker(0), waiting_worker(1, scheduled=UNSCHEDULABLE)),
        "nodes", "Unschedulable", "free cpu on the nodes", "add nodes with free cpu", group="cpu", message="3 Insufficient cpu",
    ),
    "all nodes have a taint": lambda: Case(
        of_cluster(HEAD, worker(0), waiting_worker(1, scheduled=TAINTED)),
        "nodes", "Unschedulable", "the taint gpu of nodes", "add a toleration for taint gpu", group="cpu",
    ),
    "no node has the label": lambda: Case(
        of_cluster(HEAD, worker(0), waiting_worker(1, scheduled=SELECTED)),
        "nodes", "Unschedulable", "nodeSelector or affinity of the pod template", "label nodes", group="cpu",
    ),
    "no node has the label that the template selects": lambda: Case(
        of_cluster(HEAD, worker(0), waiting_worker(1, scheduled=SELECTED), groups=(SELECTING,)),
        "nodes", "Unschedulable", "nodeSelector accelerator=tpu,zone=a, or affinity, of the pod template",
        "add nodes with the labels accelerator=tpu,zone=a", group="cpu",
    ),
    "Kueue has not admitted the pods": lambda: Case(
        of_cluster(
            HEAD, worker(0), waiting_worker(1, scheduled=GATED, scheduling_gates=("kueue.x-k8s.io/admission",))
        ),
        "nodes", "SchedulingGated", "Kueue", "kubectl get workloads -n default", group="cpu",
    ),
    "a scheduling gate is set": lambda: Case(
        of_cluster(HEAD, worker(0), waiting_worker(1, scheduled=GATED, scheduling_gates=("example.com/gate",))),
        "nodes", "SchedulingGated", "the controller of scheduling gate example.com/gate", "wait until that controller", group="cpu",
    ),
    "an image cannot be pulled": lambda: Case(
        of_cluster(HEAD, worker(0), waiting_worker(1, init_containers=(waiting("wait-gcs-ready", "ImagePullBackOff", "no such image"),))),
        "pods", "ImagePullFailed", "the image of wait-gcs-ready", "check name and tag", group="cpu", message="no such image",
    ),
    "a container crashes": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1, ready=NOT_READY, containers=(waiting("ray-worker", "CrashLoopBackOff", "back-off 40s"),))),
        "pods", "CrashLoop", "ray-worker of pod demo-cpu-worker-00001", "kubectl logs demo-cpu-worker-00001 -n default", group="cpu",
    ),
    "a worker ends before it is ready": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1, phase="Failed", ready=NOT_READY, containers=(ContainerView("ray-worker", "terminated", "Error", exit_code=127),))),
        "pods", "EndedBeforeReady", "ray-worker of pod demo-cpu-worker-00001", "kubectl describe pod demo-cpu-worker-00001", group="cpu", message="exit code 127",
    ),
    "a ConfigMap does not exist": lambda: Case(
        of_cluster(HEAD, worker(0), waiting_worker(1, containers=(waiting("ray-worker", "CreateContainerConfigError", 'configmap "missing" not found'),))),
        "pods", "ContainerConfigError", "ConfigMap missing, which does not exist", "create ConfigMap missing in namespace default", group="cpu", message="missing",
    ),
    "a worker is starting": lambda: Case(
        of_cluster(HEAD, worker(0), waiting_worker(1, node_name="node-1")),
        "pods", "WaitingForPods", "pods that are starting", "kubectl describe pod demo-cpu-worker-00001", group="cpu",
    ),
    "pods were not created and no condition has the reason": lambda: Case(
        of_cluster(HEAD, worker(0)), "pods", "PodsMissing", "the operator", "check that the operator runs", group="cpu", message="1 of 2 pods do not exist",
    ),
    "the node of a worker is not ready": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1, ready=NOT_READY, node_name="node-1"), nodes={"node-1": NodeFacts(is_ready=False)}),
        "nodes", "NodeNotReady", "node node-1", "kubectl describe node node-1", group="cpu", message="node node-1 is not Ready",
    ),
    "the head cannot be scheduled": lambda: Case(
        of_cluster(pending("demo-head-aaaaa", group=constants.HEAD_GROUP, node_type=constants.HEAD, scheduled=UNSCHEDULABLE), worker(0), worker(1)),
        "nodes", "Unschedulable", "free cpu on the nodes", "add nodes", group=constants.HEAD_GROUP,
    ),
    "the head is not ready": lambda: Case(
        of_cluster(head(ready=NOT_READY), worker(0), worker(1)),
        "pods", "HeadNotReady", "head pod demo-head-aaaaa", "kubectl describe pod demo-head-aaaaa", group=constants.HEAD_GROUP,
    ),
    "the spec is invalid": lambda: Case(
        of_cluster(groups=(group(low=5, high=2),)),
        "wanted", "InvalidRayClusterSpec", "the spec of RayCluster demo", "correct the fields", 4, message="minReplicas",
    ),
    "the spec cannot be parsed": lambda: Case(
        Objects(RAYCLUSTER, {**raycluster(), "spec": {"headGroupSpec": {}, "workerGroupSpecs": 5}}, ()),
        "wanted", "CannotBeParsed", "the spec of RayCluster demo", "correct the fields", 4, message="spec.workerGroupSpecs",
    ),
    "the operator does not run": lambda: Case(
        of_cluster(is_reconciled=False), "wanted", "NotReconciled", "the operator", "check that the operator runs", message="it has not reconciled any",
    ),
    "the operator has not seen the last edit": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), metadata={"generation": 3}, is_reconciled=True).__class__(
            RAYCLUSTER,
            {**of_cluster(HEAD, worker(0), worker(1)).obj, "metadata": {**raycluster()["metadata"], "generation": 3}},
            (HEAD, worker(0), worker(1)),
        ),
        "wanted", "NotReconciled", "the operator", "check that the operator runs", message="generation 3; generation 1 was the last one",
    ),
    "it is suspended": lambda: Case(
        of_cluster(spec={"suspend": True}), "wanted", "Suspended", "spec.suspend", "set spec.suspend to false",
    ),
    "Kueue has suspended it": lambda: Case(
        of_cluster(spec={"suspend": True}, metadata={"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}),
        "wanted", "Suspended", "Kueue, queue team-a", "kubectl get workloads -n default",
    ),
    "a group is suspended": lambda: Case(
        of_cluster(HEAD, groups=(group(replicas=2, suspend=True),)),
        "wanted", "GroupSuspended", "suspend of group cpu", "set suspend of group cpu to false", group="cpu",
    ),
    "another controller manages it": lambda: Case(
        of_cluster(spec={"managedBy": "kueue.x-k8s.io/multikueue"}),
        "wanted", "ManagedByOther", "controller kueue.x-k8s.io/multikueue", "ask controller",
    ),
    "it is being deleted": lambda: Case(
        of_cluster(HEAD, worker(0), worker(1), metadata={"deletionTimestamp": SINCE, "finalizers": ["example.com/hold"]}),
        "wanted", "Terminating", "finalizers example.com/hold", "wait until it is gone", 4,
    ),
}  # fmt: skip
"""What is the case -> its first blocker."""


# --- TrainingJobs --------------------------------------------------------------------------------------------------------------


def of_job(world: JobWorld, **more: Any) -> Objects:
    """What can be read of a TrainingJob."""
    world.obj["metadata"]["creationTimestamp"] = SINCE
    pods: tuple[AnyPod, ...] = tuple(world.pods.values())
    return Objects(TRAININGJOB, world.obj, pods, **more)


def gang(reason: str, message: str, **parameters: str) -> Objects:
    """A gang that the sharing pass lets wait."""
    world = JobWorld(start_policy="Gang")
    world.say_waiting(reason, message, **parameters)
    world.settle()
    return of_job(world)


def growing(reason: str, message: str, **parameters: str) -> Objects:
    """A job that runs and could be larger."""
    world = JobWorld(start_policy="Optimistic").run()
    world.say_waiting(reason, message, is_below_minimum=False, **parameters)
    world.settle()
    return of_job(world)


def contended_job() -> Objects:
    """Another client has written a size that was not granted several times."""
    world = JobWorld(start_policy="Optimistic")
    world.admit()
    world.run()
    world.say_requested(16, times=3)
    world.settle()
    return of_job(world)


def job_with_pod(**fields: Any) -> Objects:
    """A job of which one trainer does not start."""
    world = JobWorld(start_policy="Optimistic").settle()
    world.pod("trainer-0", **fields)
    world.settle()
    return of_job(world)


def rejected_job(message: str) -> Objects:
    """A job whose pods the API server rejects."""
    world = JobWorld(start_policy="Optimistic")
    world.pending_retries = (retry("trainer", message, "FailedToCreatePod"),)
    world.settle()
    return of_job(world)


def failed_job() -> Objects:
    """A job that has failed."""
    world = JobWorld(start_policy="Optimistic", restart_policy="Never").run()
    world.end("trainer-0", 1)
    world.end("trainer-1", 1)
    world.settle()
    return of_job(world)


def edited(**spec: Any) -> Objects:
    """A running job after an edit that the operator has reconciled."""
    world = JobWorld(start_policy="Optimistic").run()
    world.edit(**spec)
    world.settle()
    return of_job(world)


TRAININGJOBS: dict[str, Callable[[], Case]] = {
    "no node has enough free resources": lambda: Case(
        gang("InsufficientResources", "needs 1 cpu free on one node; the best node has 0 free, to reach its minimum of 2"),
        "decision", "InsufficientResources", "pods on the nodes where it may run", "use smaller trainers",
    ),
    "the load limit is reached": lambda: Case(
        gang("InsufficientResources", "needs 1 cpu more; 0 are left of the usable capacity of all nodes, to reach its minimum of 2", limit=MAX_LOAD),
        "decision", "InsufficientResources", "--max-load", "free capacity",
    ),
    "no node has a free GPU": lambda: Case(
        growing("InsufficientGPU", "needs 1 nvidia.com/gpu free on one node; the best node has 0 free, to grow beyond 4"),
        "decision", "InsufficientGPU", "pods on the nodes where it may run", "free capacity",
    ),
    "the free capacity is spread over nodes": lambda: Case(
        gang("Fragmented", "no node has 4 GPUs free"), "decision", "Fragmented", "free capacity that no single node has", "smaller trainers",
    ),
    "no node could ever run a trainer": lambda: Case(
        gang("Unsatisfiable", "no node has 64 cpu"), "demand", "Unsatisfiable", "the size of the nodes", "add a larger node", 4,
    ),
    "no node matches the selector": lambda: Case(
        gang("Unsatisfiable", "no node matches its node selector, affinity and tolerations, to reach its minimum of 2", limit=NODES),
        "demand", "Unsatisfiable", "the nodes that there are", "set --node-autoscaler of the operator to present", 4,
    ),
    "a job of higher priority holds the capacity": lambda: Case(
        gang("HigherPriority", "needs 1 cpu to reach its minimum of 2, held by default/big, which has a higher priority", holder="default/big"),
        "decision", "HigherPriority", "default/big", "set a higher priorityClassName",
    ),
    "the capacity is reserved for the first in line": lambda: Case(
        gang("CapacityReserved", "needs 1 cpu to reach its minimum of 2, reserved for default/first (first in line)", holder="default/first"),
        "decision", "CapacityReserved", "default/first", "wait until the reservation lapses",
    ),
    "the donors are in a cooldown": lambda: Case(
        growing("CoolingDown", "needs 1 cpu to grow beyond 2, held by a job of another namespace, which is in a cooldown", holder="a job of another namespace"),
        "decision", "CoolingDown", "a job of another namespace", "wait until the cooldown ends",
    ),
    "another client writes its size": lambda: Case(
        contended_job(), "decision", "ReplicasRewritten", "keda, which also writes replicas", "set scaling.enabled to false",
    ),
    "terminating pods hold its capacity": lambda: Case(
        gang("AwaitingCapacity", "Admitted with 2; waits until terminating pods are gone"),
        "decision", "AwaitingCapacity", "terminating pods", "wait until these pods are gone",
    ),
    "a quota of the namespace is used up": lambda: Case(
        gang("QuotaExceeded", "quota default/few has 0 left of 1 pods needed, to reach its minimum of 2", quota="default/few"),
        "decision", "QuotaExceeded", "ResourceQuota few", "raise ResourceQuota few",
    ),
    "the limit of the tenant is reached": lambda: Case(
        gang("QuotaExceeded", "tenant vision has 0 left of 1 cpu needed within its nominal quota and borrowing limit, to reach its minimum of 2", tenant="vision"),
        "decision", "QuotaExceeded", "tenant vision", "--tenants",
    ),
    "the operator may not read nodes": lambda: Case(
        gang("CapacityUnknown", "capacity is unknown, so the job is not scaled up: forbidden"),
        "decision", "CapacityUnknown", "the permissions of the operator", "rbac.readNodes",
    ),
    "the sharing pass has not run": lambda: Case(
        of_job(JobWorld(start_policy="Gang").settle()), "decision", "NotAdmitted", "the sharing pass", "wait for the next pass",
    ),
    "its pods are rejected for a quota": lambda: Case(
        rejected_job(QUOTA), "pods", "QuotaExceeded", "ResourceQuota few", "raise ResourceQuota few", message="create of trainer rejected",
    ),
    "the API server rejects its pods": lambda: Case(
        rejected_job("no PriorityClass with name vip was found"), "pods", "CreationForbidden", "PriorityClass vip", "create PriorityClass vip",
    ),
    "a trainer cannot be scheduled": lambda: Case(
        job_with_pod(scheduled=UNSCHEDULABLE), "nodes", "Unschedulable", "free cpu on the nodes", "add nodes with free cpu",
    ),
    "a trainer's image cannot be pulled": lambda: Case(
        job_with_pod(containers=(ContainerView("trainer", "waiting", "ImagePullBackOff", "no such image"),)),
        "pods", "ImagePullFailed", "the image of trainer", "check name and tag", message="1 of 2 trainer pods cannot start",
    ),
    "a trainer crashes": lambda: Case(
        job_with_pod(containers=(ContainerView("trainer", "waiting", "CrashLoopBackOff", "back-off 40s"),)),
        "pods", "CrashLoop", "trainer of pod demo-trainer-0", "kubectl logs demo-trainer-0",
    ),
    "the other pods wait for the master": lambda: Case(
        of_job(JobWorld(start_policy="Optimistic", master={}).settle()), "pods", "WaitingForMaster", "the master pod", "kubectl describe pod demo-master",
    ),
    "trainers are starting": lambda: Case(
        of_job(JobWorld(start_policy="Optimistic").settle()), "pods", "BelowMinimum", "pods that are starting", "kubectl describe pod", group="trainer",
    ),
    "a user asks for more trainers than the maximum": lambda: Case(
        edited(trainer={"min-instance": 2, "max-instance": 2, "replicas": 9, "entrypoint": "true"}),
        "decision", "ReplicasClamped", "max-instance 2", "raise the maximum", group="trainer",
    ),
    "the job is suspended": lambda: Case(edited(suspend=True), "wanted", "Suspended", "spec.suspend", "set spec.suspend to false"),
    "the job's spec is invalid": lambda: Case(
        edited(trainer={"min-instance": 4, "max-instance": 2, "entrypoint": "true"}), "wanted", "InvalidSpec", "the spec of TrainingJob demo", "correct the fields", 4,
    ),
    "the operator does not run": lambda: Case(
        of_job(JobWorld()), "wanted", "NotReconciled", "the operator", "check that the operator runs",
    ),
    "the job has failed": lambda: Case(failed_job(), "wanted", "", "the job, which has failed", "create it again", 4),
}  # fmt: skip
"""What is the case -> its first blocker; an empty reason is not compared."""


NOTHING_MISSING: dict[str, Callable[[], Objects]] = {
    "all workers are ready": lambda: of_cluster(HEAD, worker(0), worker(1)),
    "the autoscaler has what it wants": lambda: of_cluster(
        HEAD, worker(0), worker(1), record=decided(cpu=GroupDecision(2))
    ),
    "nodes are being drained": lambda: of_cluster(
        HEAD,
        worker(0),
        worker(1),
        record=_why(Diagnosis("Draining", 1, "draining nodes: 1; a node is deleted when its work is finished")),
    ),
    "no workers are wanted": lambda: of_cluster(HEAD, groups=(group(replicas=0),)),
    "the job runs at its size": lambda: of_job(JobWorld(start_policy="Optimistic").run()),
    "the job has succeeded": lambda: of_job(succeeded_job()),
}


def succeeded_job() -> JobWorld:
    """A job all of whose trainers have succeeded."""
    world = JobWorld(start_policy="Optimistic").run()
    world.end("trainer-0")
    world.end("trainer-1")
    return world.settle()


HOSTILE = "x\x1b[31mred\x1b]0;title\x07\u202ecod.exe\r\nkind: [link](http://x) \x9b2J"
"""Escape codes, a change of direction, line breaks and markup."""


def hostile() -> Objects:
    """A RayCluster whose texts all contain `HOSTILE`: an API server rejects such names, another writer's status may have them."""
    objects = of_cluster(HEAD, worker(0), waiting_worker(1), groups=(group(HOSTILE, replicas=2),), is_reconciled=False)
    objects.obj["metadata"]["name"] = HOSTILE
    objects.obj["status"] = {
        "observedGeneration": 1,
        "conditions": [
            {"type": kind, "status": "True", "reason": HOSTILE, "message": HOSTILE, "lastTransitionTime": HOSTILE}
            for kind in (constants.INVALID, constants.UNSUPPORTED, constants.SCALING_LIMITED, constants.REPLICA_FAILURE)
        ],
    }
    return replace(
        objects,
        pods=(
            HEAD,
            pending(
                HOSTILE,
                group=HOSTILE,
                phase=HOSTILE,
                node_name=HOSTILE,
                scheduled=PodCondition("False", "Unschedulable", HOSTILE),
            ),
        ),
        events=(Warned(HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
    )

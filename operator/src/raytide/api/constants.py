"""Names visible to users, KubeRay and Ray: labels, annotations, ports, event and condition reasons.

Also contains the functions that shorten names. Spellings are those of KubeRay (RC: Appendix A and B), so that running
clusters and tools keep working after a switch of operators. Imported by all packages.
"""

from typing import Final

# --- identity ------------------------------------------------------------------------------------------------------
OPERATOR: Final = "raytide"
VERSION: Final = "0.1.0"
"""Version of operator, autoscaler and sandbox; the package metadata takes it from here without importing a library."""
IMAGE_REPOSITORY: Final = "ghcr.io/raytide/raytide"
"""Operator and autoscaler are two commands of one image (D12)."""
LEADER_LEASE: Final = "ray-operator-leader"
"""KubeRay's lease: in one namespace the two operators never act at the same time (RC §6.3, RC:K-7)."""
AUTOSCALER_FIELD_MANAGER: Final = "raytide-autoscaler"
"""The owner of `replicas` in managedFields."""
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
"""`managedBy` of a RayCluster that Kueue runs in another Kubernetes cluster."""
MANAGED_BY_US: Final = "ray.io/kuberay-operator"

# --- labels (RC §3.3, Appendix B) ----------------------------------------------------------------------------------
CLUSTER_LABEL: Final = "ray.io/cluster"
NODE_TYPE_LABEL: Final = "ray.io/node-type"
GROUP_LABEL: Final = "ray.io/group"
IS_RAY_NODE_LABEL: Final = "ray.io/is-ray-node"
IDENTIFIER_LABEL: Final = "ray.io/identifier"
SERVE_LABEL: Final = "ray.io/serve"
HEADLESS_WORKER_SERVICE_LABEL: Final = "ray.io/headless-worker-svc"
ORIGINATED_FROM_CRD_LABEL: Final = "ray.io/originated-from-crd"
ORIGINATED_FROM_CR_NAME_LABEL: Final = "ray.io/originated-from-cr-name"
REPLICA_NAME_LABEL: Final = "ray.io/worker-group-replica-name"
REPLICA_INDEX_LABEL: Final = "ray.io/worker-group-replica-index"
HOST_INDEX_LABEL: Final = "ray.io/replica-host-index"
APP_NAME_LABEL: Final = "app.kubernetes.io/name"
CREATED_BY_LABEL: Final = "app.kubernetes.io/created-by"
HEAD_SELECTOR_KEYS: Final = frozenset(
    {CLUSTER_LABEL, NODE_TYPE_LABEL, IDENTIFIER_LABEL, APP_NAME_LABEL, CREATED_BY_LABEL}
)
"""Labels in the selector of a head service (RC:HS-3)."""
APP_NAME: Final = "kuberay"
CREATED_BY: Final = "kuberay-operator"

HEAD: Final = "head"
WORKER: Final = "worker"
REDIS_CLEANUP: Final = "redis-cleanup"
HEAD_GROUP: Final = "headgroup"
AUTOSCALER_CONTAINER: Final = "autoscaler"
"""The sidecar's container in the head pod (RC §3.7)."""
RAY_START_VARIABLE: Final = "KUBERAY_GEN_RAY_START_CMD"
"""Only the Ray container has it, in pods of Raytide as of KubeRay."""
RAY_RESOURCES_VARIABLE: Final = "RAY_OVERRIDE_RESOURCES"
"""Ray adds the JSON object in it to `--resources`."""

# --- annotations ---------------------------------------------------------------------------------------------------
FT_ENABLED_ANNOTATION: Final = "ray.io/ft-enabled"
EXTERNAL_STORAGE_NAMESPACE_ANNOTATION: Final = "ray.io/external-storage-namespace"
FT_DELETION_TIMEOUT_ANNOTATION: Final = "ray.io/gcs-ft-deletion-timeout"
IN_PLACE_RESIZE_ANNOTATION: Final = "ray.io/ippr"
OVERWRITE_CONTAINER_CMD_ANNOTATION: Final = "ray.io/overwrite-container-cmd"
ENABLE_SERVE_SERVICE_ANNOTATION: Final = "ray.io/enable-serve-service"
DISABLE_PROVISIONED_HEAD_RESTART_ANNOTATION: Final = "ray.io/disable-provisioned-head-restart"
RECREATE_HASH_ANNOTATION: Final = "ray.io/upgrade-strategy-recreate-hash"
KUBERAY_VERSION_ANNOTATION: Final = "ray.io/kuberay-version"
AUTOSCALER_DECISION_ANNOTATION: Final = "raytide.io/autoscaler-decision"
AUTOSCALER_ANNOTATION: Final = "raytide.io/autoscaler"
KEEP_FAILED_PODS_ANNOTATION: Final = "raytide.io/keep-failed-pods"
"""With the value `true`, the last failed worker of each group stays for inspection."""
FAILED_STARTS_ANNOTATION: Final = "raytide.io/failed-starts"
"""On a pod: how many pods in a row ended in its place without having been ready, and the hash of the spec (FD:RC3-3)."""
PAUSED: Final = "paused"
"""Value of `AUTOSCALER_ANNOTATION` with which a user takes over `replicas` from the autoscaler (D19)."""
ALLOW_INSECURE_ANNOTATION: Final = "raytide.io/allow-insecure"
"""On a RayCluster: comma-separated protective fields of `spec` that its pods may run without."""
NUM_OF_HOSTS_ANNOTATION: Final = "raytide.io/num-of-hosts"
"""On a pod of a multi-host replica: the number of hosts of that replica. KubeRay has no counterpart."""
RAYCLUSTER_UID_ANNOTATION: Final = "raytide.io/raycluster-uid"
"""On a clean-up Job without an owner: of which RayCluster it is."""

# --- finalizers ----------------------------------------------------------------------------------------------------
REDIS_CLEANUP_FINALIZER: Final = "ray.io/gcs-ft-redis-cleanup-finalizer"

# --- ports ---------------------------------------------------------------------------------------------------------
CLIENT_PORT: Final = 10001
GCS_SERVER_PORT: Final = 6379
DASHBOARD_PORT: Final = 8265
METRICS_PORT: Final = 8080
SERVE_PORT: Final = 8000
DASHBOARD_AGENT_PORT: Final = 52365
AUTOSCALER_METRICS_PORT: Final = 44217
AUTOSCALER_HEALTH_PORT: Final = 44218
"""`/healthz` of Raytide's sidecar; Ray's autoscaler has no such port."""

# --- event reasons (RC §6.1) ---------------------------------------------------------------------------------------
# A docstring says when, and after an empty line what to do about it; docs/events.md and docs/conditions.md say the same. Reasons
# in diagnosis/catalogue.py have their fix from there.
INVALID_METADATA: Final = "InvalidRayClusterMetadata"
"""The name of the RayCluster cannot be used: it is too long, or no DNS-1035 label."""
INVALID_SPEC: Final = "InvalidRayClusterSpec"
"""A field of the spec is invalid, unusual or contradicts another one; as an event also for names in `workersToDelete` that are no workers of the group."""
INVALID_STATUS: Final = "InvalidRayClusterStatus"
"""`RayClusterSuspending` and `RayClusterSuspended` are both True in the status; only another client can have written that.

Nothing: the operator completes the suspension, which sets the first to False.
"""
UNSUPPORTED_FIELD: Final = "UnsupportedField"
"""A field, label or annotation asks for a feature that is not built; the message names it and what happens instead. KubeRay has no such event.

Remove the field, or stay with KubeRay for this cluster.
"""
RAYS_AUTOSCALER_USED: Final = "UsingRayAutoscaler"
"""Ray's autoscaler runs instead of Raytide's, because `rayVersion` is older than any with which Raytide's is tested.

Nothing, or use a newer version of Ray.
"""
REPLICAS_CLAMPED: Final = "ReplicasClamped"
"""`replicas` of a group is outside `minReplicas` and `maxReplicas`; the message has the number that the group gets.

Change `replicas`, or the bound that the message names.
"""
HEAD_SERVICE_CHANGED: Final = "HeadServiceChanged"
"""The selector of the head service does not select the head pod, or was edited, so that workers and clients may not reach the head.

Delete the service, or the pod that the message names: the operator does not change them, but creates a missing one again.
"""
CREATED_SERVICE: Final = "CreatedService"
"""The head service, or the headless service of multi-host groups, was created."""
FAILED_TO_CREATE_SERVICE: Final = "FailedToCreateService"
"""The API server rejected the create of a service. Retried after 1 to 30 s, reported at most once a minute.

Act on the message: an invalid field, a policy, a quota or a missing permission.
"""
CREATED_SERVICE_ACCOUNT: Final = "CreatedServiceAccount"
"""The service account of the autoscaler was created."""
FAILED_TO_CREATE_SERVICE_ACCOUNT: Final = "FailedToCreateServiceAccount"
"""The API server rejected the create of the autoscaler's service account, or another owner has one of that name. Retried after 1 to 30 s.

Act on the message; a service account of your own in the head's template replaces it.
"""
AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND: Final = "AutoscalerServiceAccountNotFound"
"""The pod template of the head names a service account that does not exist. No first head pod is created until it does.

Create the service account, or remove `serviceAccountName`.
"""
CREATED_ROLE: Final = "CreatedRole"
"""The Role of the autoscaler was created."""
FAILED_TO_CREATE_ROLE: Final = "FailedToCreateRole"
"""The API server rejected the create of the autoscaler's Role, or another owner has one of that name. Retried after 1 to 30 s.

Act on the message: often the operator lacks a permission that it has to grant.
"""
CREATED_ROLE_BINDING: Final = "CreatedRoleBinding"
"""The RoleBinding of the autoscaler was created."""
FAILED_TO_CREATE_ROLE_BINDING: Final = "FailedToCreateRoleBinding"
"""The API server rejected the create of the autoscaler's RoleBinding, or another owner has one of that name. Retried after 1 to 30 s.

Act on the message: often the operator lacks a permission that it has to grant.
"""
CREATED_HEAD_POD: Final = "CreatedHeadPod"
"""The head pod was created."""
FAILED_TO_CREATE_HEAD_POD: Final = "FailedToCreateHeadPod"
"""The API server rejected the create of the head pod. Retried after 1 to 30 s, and at once when the spec changes.

Act on the message: an invalid field, a policy, a quota or a missing permission.
"""
DELETED_POD: Final = "DeletedPod"
"""A pod of a suspended or deleted cluster was deleted."""
FAILED_TO_DELETE_POD_COLLECTION: Final = "FailedToDeletePodCollection"
"""The API server rejected the delete of a pod of a suspended or deleted cluster. Retried every 30 s.

Act on the message: an admission webhook or a missing permission.
"""
DELETED_HEAD_POD: Final = "DeletedHeadPod"
"""A head pod was deleted; the message has the cause. The next one is created if the cluster has none."""
FAILED_TO_DELETE_HEAD_POD: Final = "FailedToDeleteHeadPod"
"""The API server rejected the delete of a head pod. Retried every 30 s.

Act on the message: an admission webhook or a missing permission.
"""
CREATED_WORKER_POD: Final = "CreatedWorkerPod"
"""Workers of a group were created: one event per pass and group."""
FAILED_TO_CREATE_WORKER_POD: Final = "FailedToCreateWorkerPod"
"""The API server rejected the create of a worker. Retried after 1 to 30 s, hosts of a replica after 5 to 30 s, and at once when the spec changes; reported at most once a minute and group.

Act on the message: an invalid field, a policy, a quota or a missing permission.
"""
DELETED_WORKER_POD: Final = "DeletedWorkerPod"
"""Workers were deleted; the message has the causes."""
FAILED_TO_DELETE_WORKER_POD: Final = "FailedToDeleteWorkerPod"
"""The API server rejected the delete of a worker. Retried every 30 s.

Act on the message: an admission webhook or a missing permission.
"""
OOM_KILLED: Final = "OOMKilled"
"""A pod was deleted because one of its containers exceeded its memory limit; Kubernetes' reason for that container.

Raise the memory limit of that container, or use less memory per worker.
"""
HEAD_POD_LOST: Final = "HeadPodLost"
"""The head is gone and is replaced; the message has the cause, and whether the state of the GCS survives.

If the state is lost, submit the jobs again; `spec.gcsFaultToleranceOptions` keeps it in Redis.
"""
HEAD_POD_NEVER_READY: Final = "HeadPodNeverReady"
"""A head pod ended and never was ready, so there was no GCS state to lose; the message has the cause.

Act on the cause: `kubectl logs POD` while the ended pod exists. A change of the spec ends the delay before the next one.
"""
HEAD_POD_WITHOUT_OWNER: Final = "HeadPodWithoutOwner"
"""A pod has the labels of the cluster's head and no owner, as after `kubectl delete --cascade=orphan`: no second head is created.

Delete that pod, or remove its label `ray.io/cluster`; the operator then creates the head.
"""
KEPT_FAILED_POD: Final = "KeptFailedPod"
"""A failed worker is kept for inspection, as the annotation `raytide.io/keep-failed-pods` asks.

Look at its log: `kubectl logs POD`. It is deleted when another worker of its group fails.
"""
FORCE_DELETED_STUCK_CLUSTER: Final = "ForceDeletedStuckCluster"
"""The finalizer was removed from a deleted cluster although the state of its GCS is not removed from Redis: the time is over.

Remove the data of the GCS from Redis, as the user guide shows.
"""
REDIS_CLEANUP_FAILED: Final = "RedisCleanupFailed"
"""The finalizer was removed from a deleted cluster, and the Job that removes the state of its GCS from Redis failed or could not be created.

KubeRay reports no such failure. Remove the data of the GCS from Redis, as the user guide shows.
"""
REDIS_CLEANUP_SKIPPED: Final = "RedisCleanupSkipped"
"""The finalizer was removed from a cluster that is deleted, or whose clean-up was switched off, and no Job removes the state of its GCS from Redis.

The message says why. Remove the data of the GCS from Redis, as the user guide shows.
"""
CREATED_REDIS_CLEANUP_JOB: Final = "CreatedRedisCleanupJob"
"""The head of a deleted cluster has ended, and a Job was created that removes the state of its GCS from Redis."""
FAILED_TO_CREATE_REDIS_CLEANUP_JOB: Final = "FailedToCreateRedisCleanupJob"
"""The API server rejected that Job. Retried every 5 s, for half a minute; then the cluster is deleted without it.

Act on the message: a quota, an admission webhook or a missing permission.
"""
EMBEDDED_STORAGE_GATE: Final = "GCSFaultToleranceEmbeddedStorage"
"""KubeRay's feature gate of `backend: rocksdb`."""
FAILED_TO_CREATE_AUTH_SECRET: Final = "FailedToCreateAuthSecret"  # noqa: S105 - an event's reason
"""The API server rejected the Secret with the token of a cluster with `authOptions.mode: token`; no head is created without it.

Act on the message. A Secret of that name that is somebody else's is not touched: delete it, or use it by `authOptions.secretName`.
"""
CREATED_PVC: Final = "CreatedPVC"
"""The PersistentVolumeClaim was created in which the GCS keeps its state, with `gcsFaultToleranceOptions.backend: rocksdb`."""
FAILED_TO_CREATE_PVC: Final = "FailedToCreatePVC"
"""That claim could not be created, its owner could not be changed, it is missing, is being deleted, or is not as the spec says; the message says which.

Act on the message. A claim of that name that is somebody else's is not touched: delete it, or use it by `storage.claimName`.
"""
FAILED_TO_ADD_FINALIZER: Final = "FailedToAddFinalizer"
"""The finalizer could not be set on a cluster with fault tolerance in Redis, so that no head is created; the message has the API server's error. Retried every 30 s.

Grant the permission, or switch the clean-up off (`gcsFaultTolerance.redisCleanup` of the chart).
"""
FAILED_TO_REMOVE_FINALIZER: Final = "FailedToRemoveFinalizer"
"""The finalizer could not be removed from a cluster; the message has the API server's error. Retried every 30 s.

Grant the permission, or correct the field that the error names.
"""

# --- condition types (RC §1.6) -------------------------------------------------------------------------------------
REPLICA_FAILURE: Final = "ReplicaFailure"
"""The API server rejects a write; absent when none is rejected. Its reason is that of the first of the rejected writes."""
HEAD_POD_READY: Final = "HeadPodReady"
"""The Ready condition of the head pod; if a container of it is stuck, with the container's reason and message, such as `CrashLoopBackOff`."""
PROVISIONED: Final = "RayClusterProvisioned"
"""True since the head and all wanted workers were first ready at the same time; suspending the cluster makes it False."""
SUSPENDING: Final = "RayClusterSuspending"
"""True while all pods of a cluster are deleted because it is suspended.

Wait; a change of `spec.suspend` does not stop it.
"""
SUSPENDED: Final = "RayClusterSuspended"
"""True while a suspended cluster has no pods.

Set `spec.suspend` to false to resume; removing the field does not.
"""
UNSUPPORTED: Final = "Unsupported"
"""Fields of the spec have no effect; absent when all have. Raytide's own."""
INVALID: Final = "Invalid"
"""The spec cannot be reconciled, so that nothing is created or scaled, or it asks for protection that is not built, so that no pods are created. Running pods keep running. Absent when it is valid. Raytide's own."""
WORKERS_MISSING: Final = "WorkersMissing"
"""Fewer workers are ready than desired; absent when there are enough. The reason is the most frequent known cause in the first of these groups that has one. Raytide's own."""
AUTOSCALER_DOWN: Final = "AutoscalerDown"
"""No autoscaler that could decide is running: False for the first five minutes, in which its last decision applies, then True, and `replicas` of the spec apply. Absent while one decides. Raytide's own."""
REPLICAS_CONTENDED: Final = "ReplicasContended"
"""Another client and the autoscaler write different `replicas`: True after 10 s, absent after 15 s of agreement. Raytide's own."""
SCALING_LIMITED: Final = "ScalingLimited"
"""The autoscaler cannot scale a group as the demand requires; absent when nothing limits it. The message begins with demand that can never run, if there is any; the reason is that of its first entry. Raytide's own."""

# --- condition reasons (RC §1.6) -----------------------------------------------------------------------------------
HEAD_POD_NOT_FOUND: Final = "HeadPodNotFound"
"""There is no head pod.

See `ReplicaFailure` and the events of the RayCluster.
"""
HEAD_POD_READY_REASON: Final = "HeadPodRunningAndReady"
"""The head pod is ready."""
UNKNOWN: Final = "Unknown"
"""The head pod has no Ready condition yet, or one without a reason.

Wait; if it persists, `kubectl describe pod` of the head.
"""
ALL_PODS_READY_FIRST_TIME: Final = "AllPodRunningAndReadyFirstTime"
"""The head and all wanted workers have been ready at the same time."""
PODS_PROVISIONING: Final = "RayClusterPodsProvisioning"
"""Not all pods have been ready yet, or the cluster has been suspended.

Wait; `HeadPodReady` and `WorkersMissing` have what is missing.
"""
FAILED_CREATE_SERVICE: Final = "FailedCreateService"
"""A service was rejected. This and the next three reasons are Raytide's own.

Act on the message: an invalid field, a policy, a quota or a missing permission.
"""
FAILED_CREATE_SERVICE_ACCOUNT: Final = "FailedCreateServiceAccount"
"""The service account of the autoscaler was rejected, or another owner has one of that name.

Act on the message; a service account of your own in the head's template replaces it.
"""
FAILED_CREATE_ROLE: Final = "FailedCreateRole"
"""The Role of the autoscaler was rejected, or another owner has one of that name.

Act on the message: often the operator lacks a permission that it has to grant.
"""
FAILED_CREATE_ROLE_BINDING: Final = "FailedCreateRoleBinding"
"""The RoleBinding of the autoscaler was rejected, or another owner has one of that name.

Act on the message: often the operator lacks a permission that it has to grant.
"""
FAILED_CREATE_HEAD_POD: Final = "FailedCreateHeadPod"
"""The head pod was rejected.

Act on the message: an invalid field, a policy, a quota or a missing permission.
"""
FAILED_DELETE_HEAD_POD: Final = "FailedDeleteHeadPod"
"""The delete of a head pod was rejected.

Act on the message: an admission webhook or a missing permission.
"""
FAILED_CREATE_WORKER_POD: Final = "FailedCreateWorkerPod"
"""A worker was rejected; the message has each group.

Act on the message: an invalid field, a policy, a quota or a missing permission.
"""
FAILED_DELETE_WORKER_POD: Final = "FailedDeleteWorkerPod"
"""The delete of a worker was rejected.

Act on the message: an admission webhook or a missing permission.
"""
FAILED_DELETE_ALL_PODS: Final = "FailedDeleteAllPods"
"""The delete of a pod of a suspended cluster was rejected.

Act on the message: an admission webhook or a missing permission.
"""
WAITING_FOR_PODS: Final = "WaitingForPods"
"""Workers are starting, and no failure is known."""
HEAD_MISSING: Final = "HeadMissing"
"""There is no head pod, and so no autoscaler."""
HEAD_REPLACED: Final = "HeadReplaced"
"""The autoscaler of the present head pod has not decided yet; the decision is that of an earlier head pod."""
HEAD_NODE_AWAY: Final = "HeadNodeAway"
"""The node of the head pod is not Ready or is gone."""
AUTOSCALER_NOT_RUNNING: Final = "AutoscalerNotRunning"
"""The container `autoscaler` of the head pod is not running."""
RECORD_OF_ANOTHER_CLUSTER: Final = "RecordOfAnotherCluster"
"""The decision was written for an earlier RayCluster of this name, as after a restored backup."""
REPLICAS_DIFFER: Final = "ReplicasDiffer"
"""`replicas` in the spec has differed from the autoscaler's decision for less than 10 s.

Wait: the autoscaler adopts the number, or writes its own again.
"""
REPLICAS_REWRITTEN: Final = "ReplicasRewritten"
"""Another client keeps overwriting the autoscaler's `replicas`; the message has its field manager."""
OTHER_LIMIT: Final = "Other"
"""The decision has a reason that is no valid reason of a condition, so another client wrote it.

Act on the message.
"""
FEATURE_NOT_BUILT: Final = "FeatureNotBuilt"
"""The message names each field without effect, and what happens instead.

Remove the fields.
"""

# --- shortening (RC §3.2; lengths count bytes, and all of these names are ASCII) -----------------------------------
REPLICA_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


def _with_letter_in_front(name: str, *, also_digits: bool) -> str:
    first = name[:1]
    if first and not first.isalnum():
        return "r" + name[1:]
    return "r" + name[1:] if also_digits and first.isdigit() else name


def check_name(name: str) -> str:
    """The last 50 characters, with a leading digit or punctuation replaced by `r` (RC §3.2 CheckName)."""
    return _with_letter_in_front(name[-50:], also_digits=True)


def check_label(value: str) -> str:
    """The last 63 characters, with leading punctuation replaced by `r` (RC §3.2 CheckLabel)."""
    return _with_letter_in_front(value[-63:], also_digits=False)


def head_service_name(cluster: str) -> str:
    """The head service's name unless the user chose one (RC:HS-2)."""
    return f"{cluster}-head-svc"


def headless_service_name(cluster: str) -> str:
    """The name of the service that gives the pods of multi-host groups DNS names (RC:HL-2)."""
    return f"{cluster}-headless"


def head_identifier(cluster: str) -> str:
    """The value of `ray.io/identifier` on the head pod and in the head service's selector (RC §3.3)."""
    return check_label(f"{cluster}-head")


def worker_identifier(cluster: str) -> str:
    """The value of `ray.io/identifier` on worker pods (RC §3.3)."""
    return check_label(f"{cluster}-worker")

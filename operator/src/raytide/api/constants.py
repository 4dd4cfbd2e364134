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
APP_NAME: Final = "kuberay"
CREATED_BY: Final = "kuberay-operator"

HEAD: Final = "head"
WORKER: Final = "worker"
REDIS_CLEANUP: Final = "redis-cleanup"
HEAD_GROUP: Final = "headgroup"
AUTOSCALER_CONTAINER: Final = "autoscaler"
"""The sidecar's container in the head pod (RC §3.7)."""

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
PAUSED: Final = "paused"
"""Value of `AUTOSCALER_ANNOTATION` with which a user takes over `replicas` from the autoscaler (D19)."""
ALLOW_INSECURE_ANNOTATION: Final = "raytide.io/allow-insecure"
"""On a RayCluster: comma-separated protective fields of `spec` that its pods may run without."""
NUM_OF_HOSTS_ANNOTATION: Final = "raytide.io/num-of-hosts"
"""On a pod of a multi-host replica: the number of hosts of that replica. KubeRay has no counterpart."""

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
INVALID_METADATA: Final = "InvalidRayClusterMetadata"
INVALID_SPEC: Final = "InvalidRayClusterSpec"
INVALID_STATUS: Final = "InvalidRayClusterStatus"
UNSUPPORTED_FIELD: Final = "UnsupportedField"
"""Raytide's: a field asks for a feature that is not implemented yet."""
RAYS_AUTOSCALER_USED: Final = "UsingRayAutoscaler"
"""Raytide's: Ray's autoscaler runs instead of Raytide's, because the cluster's Ray version is too old for it."""
REPLICAS_CLAMPED: Final = "ReplicasClamped"
"""Raytide's: the group's replicas were clamped to its minimum or maximum."""
HEAD_SERVICE_CHANGED: Final = "HeadServiceChanged"
"""Raytide's: the selector of the head service is not the one it was created with."""
CREATED_SERVICE: Final = "CreatedService"
FAILED_TO_CREATE_SERVICE: Final = "FailedToCreateService"
CREATED_SERVICE_ACCOUNT: Final = "CreatedServiceAccount"
FAILED_TO_CREATE_SERVICE_ACCOUNT: Final = "FailedToCreateServiceAccount"
AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND: Final = "AutoscalerServiceAccountNotFound"
CREATED_ROLE: Final = "CreatedRole"
FAILED_TO_CREATE_ROLE: Final = "FailedToCreateRole"
CREATED_ROLE_BINDING: Final = "CreatedRoleBinding"
FAILED_TO_CREATE_ROLE_BINDING: Final = "FailedToCreateRoleBinding"
CREATED_HEAD_POD: Final = "CreatedHeadPod"
FAILED_TO_CREATE_HEAD_POD: Final = "FailedToCreateHeadPod"
DELETED_POD: Final = "DeletedPod"
"""A pod of a suspended cluster."""
FAILED_TO_DELETE_POD_COLLECTION: Final = "FailedToDeletePodCollection"
DELETED_HEAD_POD: Final = "DeletedHeadPod"
FAILED_TO_DELETE_HEAD_POD: Final = "FailedToDeleteHeadPod"
CREATED_WORKER_POD: Final = "CreatedWorkerPod"
FAILED_TO_CREATE_WORKER_POD: Final = "FailedToCreateWorkerPod"
DELETED_WORKER_POD: Final = "DeletedWorkerPod"
FAILED_TO_DELETE_WORKER_POD: Final = "FailedToDeleteWorkerPod"
OOM_KILLED: Final = "OOMKilled"
"""Kubernetes' reason for a container that exceeded its memory limit; as an event: the reason for deleting a pod."""
HEAD_POD_LOST: Final = "HeadPodLost"
KEPT_FAILED_POD: Final = "KeptFailedPod"
FORCE_DELETED_STUCK_CLUSTER: Final = "ForceDeletedStuckCluster"
REDIS_CLEANUP_FAILED: Final = "RedisCleanupFailed"
REDIS_CLEANUP_SKIPPED: Final = "RedisCleanupSkipped"
"""Raytide's, as are the reasons before and after it: KubeRay runs a clean-up Job and reports no failure of it."""
FAILED_TO_REMOVE_FINALIZER: Final = "FailedToRemoveFinalizer"

# --- condition types and reasons (RC §1.6) -------------------------------------------------------------------------
REPLICA_FAILURE: Final = "ReplicaFailure"
HEAD_POD_READY: Final = "HeadPodReady"
PROVISIONED: Final = "RayClusterProvisioned"
SUSPENDING: Final = "RayClusterSuspending"
SUSPENDED: Final = "RayClusterSuspended"
UNSUPPORTED: Final = "Unsupported"
INVALID: Final = "Invalid"
WORKERS_MISSING: Final = "WorkersMissing"
AUTOSCALER_DOWN: Final = "AutoscalerDown"
REPLICAS_CONTENDED: Final = "ReplicasContended"
SCALING_LIMITED: Final = "ScalingLimited"
WAITING_FOR_PODS: Final = "WaitingForPods"
"""Reason of `WorkersMissing` while no failure is known."""

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

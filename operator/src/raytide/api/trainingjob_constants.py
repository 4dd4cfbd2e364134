"""Names of TrainingJobs visible to users, Paddle and torchrun.

The counterpart of constants.py: roles, labels, annotations, condition types, phases, event reasons and resource names.
The three `paddle-job*` labels are those of Paddle's own controllers (TJ §2.2), so that images made for them find their
peers; Raytide's labels and annotations begin with `raytide.io`. Imported by all packages that handle TrainingJobs.
"""

from typing import Final

# --- roles and names of children (TJ §2.2, §8) -----------------------------------------------------------------------
MASTER: Final = "master"
PSERVER: Final = "pserver"
TRAINER: Final = "trainer"
ROLES: Final = (MASTER, PSERVER, TRAINER)
"""In the order in which they start."""
ETCD: Final = "etcd"

# --- labels ------------------------------------------------------------------------------------------------------------
JOB_LABEL: Final = "raytide.io/training-job"
"""On every pod, service and ConfigMap of a job; the informers select by it."""
ROLE_LABEL: Final = "raytide.io/training-role"
INDEX_LABEL: Final = "raytide.io/training-index"
MEMBERSHIP_ANNOTATION: Final = "raytide.io/membership-revision"
"""Of the membership ConfigMap: a hash of its files; of a pod: the one that its kubelet was last told of."""
ROLE_JOB_LABELS: Final = {MASTER: "paddle-job-master", PSERVER: "paddle-job-pserver", TRAINER: "paddle-job"}
"""Paddle's labels: the value is the job's name, by which containers list their peers."""

# --- annotations -------------------------------------------------------------------------------------------------------
SHARING_ANNOTATION: Final = "raytide.io/sharing"
"""On the TrainingJob: the sharing record (sharing_record.py)."""

# --- condition types (TJ §8) ---------------------------------------------------------------------------------------------
ADMITTED: Final = "Admitted"
RUNNING: Final = "Running"
SCALING: Final = "Scaling"
WAITING: Final = "Waiting"
SUSPENDED: Final = "Suspended"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

INVALID: Final = "Invalid"
UNSUPPORTED: Final = "Unsupported"
"""Both as for RayClusters: present only while they apply."""
GANG_READY: Final = "GangReady"
"""Reason of `Admitted` once the whole minimum of a gang has run."""

# --- phases; upstream's lower-case names mean the same (TJ §3 row 22) ------------------------------------------------
PHASE_PENDING: Final = "Pending"
PHASE_CREATING: Final = "Creating"
PHASE_RUNNING: Final = "Running"
PHASE_SCALING: Final = "Scaling"
PHASE_SUSPENDED: Final = "Suspended"
PHASE_SUCCEEDED: Final = "Succeeded"
PHASE_FAILED: Final = "Failed"

# --- event reasons (TJ §8) -------------------------------------------------------------------------------------------------
SCALED_UP: Final = "ScaledUp"
SCALED_DOWN: Final = "ScaledDown"
WAITING_FOR_RESOURCES: Final = "WaitingForResources"
GANG_TIMEOUT: Final = "GangTimeout"
AWAITING_CAPACITY: Final = "AwaitingCapacity"
"""Waiting reason of a job whose capacity is still occupied by terminating pods of its victims."""
INVALID_SPEC: Final = "InvalidSpec"
CREATED_POD: Final = "CreatedPod"
FAILED_TO_CREATE_POD: Final = "FailedToCreatePod"
POD_FAILED: Final = "PodFailed"
"""A pod of the job failed or was disrupted by the cluster; reported once per pod."""
DELETED_POD: Final = "DeletedPod"
FAILED_TO_DELETE_POD: Final = "FailedToDeletePod"

CREATED_SERVICE: Final = "CreatedService"
FAILED_TO_CREATE_SERVICE: Final = "FailedToCreateService"
CREATED_MEMBERSHIP: Final = "CreatedMembership"
FAILED_TO_CREATE_MEMBERSHIP: Final = "FailedToCreateMembership"
UPDATED_MEMBERSHIP: Final = "UpdatedMembership"
FAILED_TO_UPDATE_MEMBERSHIP: Final = "FailedToUpdateMembership"
DELETED_JOB: Final = "TTLExpired"
FAILED_TO_DELETE_JOB: Final = "FailedToDeleteJob"

# --- resources -----------------------------------------------------------------------------------------------------------
OLD_GPU: Final = "alpha.kubernetes.io/nvidia-gpu"
GPU: Final = "nvidia.com/gpu"
"""What `OLD_GPU` is translated to (TJ §3 row 18)."""

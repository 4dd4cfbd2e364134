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
MASTER_PORT: Final = 8080
ETCD_PORT: Final = 2379
"""Beside the master, under Paddle's launcher."""

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
"""Whether the pods of the job may exist."""
RUNNING: Final = "Running"
"""Whether the master, the parameter servers and the minimum of trainers run; the message has the numbers."""
SCALING: Final = "Scaling"
"""True from a change of the size until exactly the wanted trainers run; absent until the minimum has run once."""
WAITING: Final = "Waiting"
"""True while the job lacks capacity for its minimum, or its pods do not run; False with a reason while it runs and could be larger; absent when nothing is missing."""
SUSPENDED: Final = "Suspended"
"""True while `spec.suspend` is set; absent for a job that was never suspended."""
SUCCEEDED: Final = "Succeeded"
"""The job has completed, as its `successPolicy` says; final."""
FAILED: Final = "Failed"
"""The job has failed; final."""

INVALID: Final = "Invalid"
"""The spec cannot be reconciled; running pods keep running. Absent when it is valid."""
UNSUPPORTED: Final = "Unsupported"
"""Fields of the spec have no effect; absent when all have."""
REPLICAS_CONTENDED: Final = "ReplicasContended"
"""Another client writes sizes to `spec.trainer.replicas` that fair sharing does not grant, or makes the job smaller again and again: False after the first one, True from the second one in a row on, absent 5 to 10 min after the last one, or once it is granted."""
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
# A docstring says when, and after an empty line what to do about it; docs/events.md and docs/conditions.md say the same. Reasons
# in diagnosis/catalogue.py have their fix from there.
SCALED_UP: Final = "ScaledUp"
"""The sharing pass, or a client that wrote `spec.trainer.replicas`, made the job larger; the message has sizes and cause."""
SCALED_DOWN: Final = "ScaledDown"
"""The sharing pass, or a client that wrote `spec.trainer.replicas`, made the job smaller; the message has sizes and cause, and a job of the same namespace that receives the capacity."""
WAITING_FOR_RESOURCES: Final = "WaitingForResources"
"""The job waits for capacity, a quota or its admission: once per reason of `Waiting`, with which the message begins.

`raytide why NAME` has what holds it up and what to do; see the reasons of `Waiting`.
"""
GANG_TIMEOUT: Final = "GangTimeout"
"""The minimum did not start in time, and the job releases its capacity."""
AWAITING_CAPACITY: Final = "AwaitingCapacity"
"""The capacity of the job is still occupied by terminating pods."""
INVALID_SPEC: Final = "InvalidSpec"
"""A field of the spec is invalid or unusual; the message names it."""
CREATED_POD: Final = "CreatedPod"
"""Pods of a role were created: one event per pass and role."""
FAILED_TO_CREATE_POD: Final = "FailedToCreatePod"
"""The API server rejected the create of a pod. Retried after 1 to 30 s, trainers every 30 s; reported at most once a minute and role.

Act on the message: an invalid field, a policy, a quota or a missing permission.
"""
POD_FAILED: Final = "PodFailed"
"""A pod of the job failed or was disrupted by the cluster; reported once per pod. The message has how it ended, and how that counts against the limits of the job.

Look at its log: `kubectl logs POD`. The pod is replaced while the limits allow it.
"""
DELETED_POD: Final = "DeletedPod"
"""Pods were deleted; the message has the causes."""
FAILED_TO_DELETE_POD: Final = "FailedToDeletePod"
"""The API server rejected the delete of a pod. Retried every 30 s.

Act on the message: an admission webhook or a missing permission.
"""

CREATED_SERVICE: Final = "CreatedService"
"""The headless service, by which the pods find each other, was created."""
FAILED_TO_CREATE_SERVICE: Final = "FailedToCreateService"
"""The API server rejected the create of the service. Retried after 1 to 30 s.

Act on the message: an invalid field, a policy, a quota or a missing permission.
"""
CREATED_MEMBERSHIP: Final = "CreatedMembership"
"""The ConfigMap with the list of members was created."""
FAILED_TO_CREATE_MEMBERSHIP: Final = "FailedToCreateMembership"
"""The API server rejected the create of the ConfigMap with the list of members. Retried after 1 to 30 s.

Act on the message: an invalid field, a policy, a quota or a missing permission.
"""
UPDATED_MEMBERSHIP: Final = "UpdatedMembership"
"""The list of members in the ConfigMap changed, as before each change of the pods."""
FAILED_TO_UPDATE_MEMBERSHIP: Final = "FailedToUpdateMembership"
"""The API server rejected the update of the list of members. Retried every 30 s.

Act on the message: a policy or a missing permission.
"""
DELETED_JOB: Final = "TTLExpired"
"""The job was deleted, because it ended more than `ttlSecondsAfterFinished` ago."""
FAILED_TO_DELETE_JOB: Final = "FailedToDeleteJob"
"""The API server rejected the delete of a job whose TTL is over. Retried every 30 s.

Act on the message: an admission webhook or a missing permission.
"""

# --- condition reasons ---------------------------------------------------------------------------------------------------
SCALING_UP: Final = "ScalingUp"
SCALING_DOWN: Final = "ScalingDown"
REPLICAS_DIFFER: Final = "ReplicasDiffer"
"""Fair sharing granted less than a client wrote to `spec.trainer.replicas`, where the granted size is now.

See the reason of `Waiting` for why the job is not larger.
"""
REPLICAS_REWRITTEN: Final = "ReplicasRewritten"
"""Another client keeps overwriting the size that fair sharing decided; the message has its field manager."""
FEATURE_NOT_BUILT: Final = "FeatureNotBuilt"
"""The message names each field without effect.

Remove the fields.
"""
RANK_ZERO_SUCCEEDED: Final = "RankZeroSucceeded"
"""Trainer 0 has succeeded, and `successPolicy` is `RankZero`."""
TRAINER_SUCCEEDED: Final = "TrainerSucceeded"
"""One trainer has succeeded, and `successPolicy` is `AnyTrainer`."""
TRAINERS_SUCCEEDED: Final = "TrainersSucceeded"
"""All trainers have ended, and at least one has succeeded."""

# --- resources -----------------------------------------------------------------------------------------------------------
OLD_GPU: Final = "alpha.kubernetes.io/nvidia-gpu"
GPU: Final = "nvidia.com/gpu"
"""What `OLD_GPU` is translated to (TJ §3 row 18)."""

"""What is known to be harmless in Kubernetes objects: names of fields, variables, annotations, parameters, and words of commands.

Values only. Used by redact_objects.py; docs/diagnose.md lists the environment variables.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from raytide.api import autoscaler_decision, constants, sharing_record, trainingjob_constants
from raytide.diagnosis.model import PARAMETERS

_VARIABLES: Final = """
FQ_RAY_IP RAY_IP RAY_PORT RAY_ADDRESS RAY_CLUSTER_NAME RAY_CLUSTER_NAMESPACE RAY_USAGE_STATS_KUBERAY_IN_USE
RAY_USAGE_STATS_EXTRA_TAGS RAY_USAGE_STATS_ENABLED RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE RAY_timeout_ms_task_wait_for_death_info
RAY_gcs_server_request_timeout_seconds RAY_SERVE_KV_TIMEOUT_S RAY_enable_autoscaler_v2 RAY_external_storage_namespace
RAY_gcs_rpc_server_reconnect_timeout_s RAY_START_ULIMIT_OPEN_FILES RAY_OVERRIDE_RESOURCES RAYTIDE_JOB_NAME
RAYTIDE_ROLE RAYTIDE_INDEX RAYTIDE_MEMBERSHIP_DIR RAYTIDE_MASTER_ENDPOINT TRAINING_ROLE PADDLE_PORT PADDLE_CURRENT_ENDPOINT PADDLE_TRAINERS_NUM
PADDLE_WITH_GLOO PADDLE_PSERVERS_IP_PORT_LIST PADDLE_TRAINER_ID PADDLE_TRAINER_ENDPOINTS PET_NNODES PET_NPROC_PER_NODE
PET_NODE_RANK PET_RDZV_BACKEND PET_RDZV_ENDPOINT PET_RDZV_ID PET_RDZV_CONF PET_MAX_RESTARTS
"""
_ANNOTATIONS: Final = frozenset(
    {
        constants.FT_ENABLED_ANNOTATION,
        constants.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION,
        constants.FT_DELETION_TIMEOUT_ANNOTATION,
        constants.OVERWRITE_CONTAINER_CMD_ANNOTATION,
        constants.ENABLE_SERVE_SERVICE_ANNOTATION,
        constants.DISABLE_PROVISIONED_HEAD_RESTART_ANNOTATION,
        constants.RECREATE_HASH_ANNOTATION,
        constants.KUBERAY_VERSION_ANNOTATION,
        constants.AUTOSCALER_ANNOTATION,
        constants.KEEP_FAILED_PODS_ANNOTATION,
        constants.ALLOW_INSECURE_ANNOTATION,
        constants.NUM_OF_HOSTS_ANNOTATION,
        trainingjob_constants.MEMBERSHIP_ANNOTATION,
        "controller-gen.kubebuilder.io/version",
        "deployment.kubernetes.io/revision",
    }
)
_START_PARAMS: Final = """
address autoscaling-config block dashboard-agent-grpc-port dashboard-agent-listen-port dashboard-grpc-port dashboard-host
dashboard-port disable-usage-stats enable-object-reconstruction gcs-server-port head include-dashboard include-log-monitor
labels log-color log-style max-worker-port memory metrics-export-port min-worker-port no-monitor no-redirect-output
node-ip-address node-manager-port num-cpus num-gpus object-manager-port object-spilling-directory object-store-memory
plasma-directory plasma-store-socket-name port ray-client-server-port ray-debugger-external redis-max-memory redis-shard-ports
resources runtime-env-agent-port temp-dir tracing-startup-hook verbose worker-port-list
"""
HARMLESS_START_PARAMS: Final = frozenset(_START_PARAMS.split())
"""Parameters of `ray start` without credentials: not `redis-password`, `redis-username` and `system-config`."""
HARMLESS_VARIABLES: Final = frozenset(_VARIABLES.split())
"""Variables that Raytide and KubeRay set: not REDIS_PASSWORD, REDIS_USERNAME, RAY_REDIS_ADDRESS and RAY_AUTH_TOKEN."""
START_COMMAND: Final = constants.RAY_START_VARIABLE
"""A variable whose value is a command."""
ENTRIES: Final = {
    "annotations": _ANNOTATIONS,
    "headServiceAnnotations": _ANNOTATIONS,
    "env": HARMLESS_VARIABLES,
    "envs": HARMLESS_VARIABLES,
    "rayStartParams": HARMLESS_START_PARAMS,
    "parameters": PARAMETERS,  # of a diagnosis
}
"""Maps whose keys users choose -> the keys whose values stay; `env` is a list of name and value."""
_COMMAND_WORDS: Final = """
/bin/bash /bin/sh /usr/bin/bash /usr/bin/env bash sh -c -l -lc -ec -lec -- - ray start stop raytide operator autoscaler
kuberay-autoscaler ulimit -n 65536 ${RAY_START_ULIMIT_OPEN_FILES:-65536} exec sleep infinity true false echo python python3 -m
-u wget curl grep timeout etcd torchrun paddle paddle_k8s start_new_trainer start_trainer start_pserver start_master
$(RAY_CLUSTER_NAME) $(RAY_CLUSTER_NAMESPACE)
"""
COMMAND_WORDS: Final = frozenset(_COMMAND_WORDS.split())
"""Words of commands that Raytide and KubeRay write, and names of common programs."""
FLAGS: Final = HARMLESS_START_PARAMS | {"cluster-name", "cluster-namespace", "gcs-address", "restarts"}
"""Options of `ray start`, of the autoscaler and of torchrun whose values stay."""
RECORDS: Final[Mapping[str, tuple[Callable[[str], Any], Callable[[Any], str]]]] = {
    constants.AUTOSCALER_DECISION_ANNOTATION: (autoscaler_decision.parse_record, autoscaler_decision.encode_record),
    trainingjob_constants.SHARING_ANNOTATION: (sharing_record.parse_record, sharing_record.encode_record),
}
"""Annotations with a JSON text that the autoscaler or fair sharing wrote, and their parser and encoder."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""A copy of the object, with all that is redacted in it."""
DROPPED_FIELDS: Final = frozenset({LAST_APPLIED, "managedFields", "data", "binaryData", "stringData", "immutable"})
_FREE_FIELDS: Final = """
labels matchLabels nodeSelector node_selector selector stateTransitionTimes incidents endpoints resources limits requests
capacity allocatable allocatedResources overhead hard used taints tolerations
"""
FREE_FIELDS: Final = frozenset(_FREE_FIELDS.split())
"""Fields with keys that users choose, and quantities: names, numbers and times in them stay."""
TEXT_FIELDS: Final = frozenset({"message", "reason", "note", "osImage", "redisAddress", "fieldPath", "selector"})
"""Their strings are redacted as texts."""
COMMAND_FIELDS: Final = frozenset({"command", "args", "entrypoint", "preStopCmd", "pre_stop_cmd"})
"""Only known words of them stay."""

_METADATA_FIELDS: Final = """
apiVersion kind metadata name namespace uid generation generateName creationTimestamp deletionTimestamp
deletionGracePeriodSeconds resourceVersion finalizers ownerReferences controller blockOwnerDeletion spec status
"""
_RAYCLUSTER_FIELDS: Final = """
headGroupSpec workerGroupSpecs groupName groupTemplate replicas minReplicas maxReplicas numOfHosts idleTimeoutSeconds priority
suspend scaleStrategy workersToDelete template rayVersion managedBy enableInTreeAutoscaling autoscalerOptions version
upscalingMode serviceType enableIngress headService upgradeStrategy gcsFaultToleranceOptions backend redisPassword
redisUsername externalStorageNamespace networkPolicy mode enabled authOptions availableWorkerReplicas desiredWorkerReplicas
maxWorkerReplicas minWorkerReplicas readyWorkerReplicas desiredCPU desiredGPU desiredMemory desiredTPU head podName
serviceName state observedGeneration lastUpdateTime diagnoses count
"""
_TRAININGJOB_FIELDS: Final = """
trainer pserver master port ports_num portsNum ports_num_for_sparse portsNumForSparse fault_tolerant faultTolerant
host_network passes trainer_port trainer_ports_num is_nccl local_job matrix index_succeed framework frame_work type
startPolicy pendingTimeoutSeconds scaling step allowedSizes growCooldownSeconds shrinkCooldownSeconds minRuntimeSeconds
rebalance yieldToPods accounting restartPolicy backoffLimit maxFailedPercent successPolicy ttlSecondsAfterFinished
podGroupName min-instance minInstance max-instance maxInstance trainersPerPserver grace_period_seconds gracePeriodSeconds
replicaSpec phase admission timeouts forbidden repeatedlyForbidden completionTime failures counted inARow lastTime
incidentTime disruptionTime resizeIncidentTimes desired failed max min pending ready running succeeded restarts history forJob
from to time lastReason lastScaleTime startTime completedIndexes failedIndexes fulfillment waiting
"""
_POD_FIELDS: Final = """
containers initContainers ephemeralContainers image imagePullPolicy ports containerPort hostPort protocol targetPort nodePort
appProtocol resizePolicy resourceName securityContext runAsUser runAsGroup runAsNonRoot fsGroup fsGroupChangePolicy
supplementalGroups privileged allowPrivilegeEscalation readOnlyRootFilesystem capabilities add drop seccompProfile procMount
serviceAccountName serviceAccount automountServiceAccountToken nodeName schedulerName schedulingGates schedulingPolicy
priorityClassName preemptionPolicy runtimeClassName hostNetwork hostPID hostIPC dnsPolicy enableServiceLinks
shareProcessNamespace terminationGracePeriodSeconds activeDeadlineSeconds imagePullSecrets readinessGates conditionType
hostname subdomain setHostnameAsFQDN affinity nodeAffinity podAffinity podAntiAffinity
requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution nodeSelectorTerms
matchExpressions matchFields preference podAffinityTerm weight key operator values topologyKey namespaces namespaceSelector
labelSelector topologySpreadConstraints maxSkew whenUnsatisfiable minDomains nodeAffinityPolicy nodeTaintsPolicy
matchLabelKeys livenessProbe readinessProbe startupProbe liveness_probe readiness_probe exec httpGet tcpSocket grpc scheme
service initialDelaySeconds periodSeconds timeoutSeconds successThreshold failureThreshold lifecycle postStart preStop sleep
seconds stdin stdinOnce tty workingDir terminationMessagePath terminationMessagePolicy volumes volumeMounts VolumeMounts volumeDevices mountPath
mountpath devicePath path subPath readOnly mountPropagation emptyDir medium configMap secret secretName items optional
defaultMode persistentVolumeClaim claimName hostPath projected sources serviceAccountToken expirationSeconds audience
downwardAPI fieldRef resourceFieldRef divisor resource valueFrom secretKeyRef configMapKeyRef configMapRef secretRef
containerName ephemeral volumeClaimTemplate accessModes storageClassName volumeMode resourceClaims resourceClaimName
resourceClaimTemplateName claims request claim conditions lastTransitionTime lastProbeTime lastHeartbeatTime qosClass resize
nominatedNodeName containerStatuses initContainerStatuses ephemeralContainerStatuses restartCount started state lastState
terminated exitCode signal startedAt finishedAt imageID
"""
_OTHER_FIELDS: Final = """
publishNotReadyAddresses sessionAffinity internalTrafficPolicy externalTrafficPolicy ipFamilyPolicy strategy rollingUpdate
maxSurge maxUnavailable minReadySeconds progressDeadlineSeconds revisionHistoryLimit paused availableReplicas readyReplicas
updatedReplicas unavailableReplicas holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions effect
timeAdded tolerationSeconds unschedulable nodeInfo kubeletVersion kernelVersion architecture operatingSystem
containerRuntimeVersion scopes scopeSelector scopeName group scope names plural singular listKind shortNames categories
versions served storage deprecated storedVersions acceptedNames conversion
"""

KEPT_FIELDS: Final = frozenset(
    f"{_METADATA_FIELDS} {_RAYCLUSTER_FIELDS} {_TRAININGJOB_FIELDS} {_POD_FIELDS} {_OTHER_FIELDS}".split()
)
"""Fields whose maps and lists are walked, and whose values stay if they have the form of a name, a number or a time."""

NODE_LABEL_DOMAINS: Final = (
    "kubernetes.io",
    "k8s.io",
    "cloud.google.com",
    "eks.amazonaws.com",
    "kubernetes.azure.com",
    "karpenter.sh",
    "nvidia.com",
    "amd.com",
)
"""Ends of the domains of labels of nodes that stay, besides those that pods select."""

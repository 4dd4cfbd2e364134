"""What is known to be harmless in Kubernetes objects: names of fields, variables, flags, words and annotations.

Values only. A test compares the flags with those of `raytide operator`, and the variables with those that Raytide sets. Used by
redact_objects.py; docs/diagnose.md lists the environment variables.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from raytide.api import autoscaler_decision, constants, sharing_record, trainingjob_constants

_HOST: Final = r"[A-Za-z0-9_.-]{1,253}"
_PORT: Final = r"[0-9]{1,5}"
_ENDPOINT: Final = rf"(?:{_HOST}|\$\(POD_IP\)):{_PORT}"
_ENDPOINTS: Final = rf"{_ENDPOINT}(?:,{_ENDPOINT})*"
_WORD: Final = r"[A-Za-z][A-Za-z0-9-]{0,63}"
_NUMBER: Final = r"[0-9]{1,10}"
_DNS: Final = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_UID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

HARMLESS_VARIABLES: Final = {
    name: re.compile(form, re.ASCII)
    for name, form in {
        # KubeRay's and Raytide's, in Ray pods (raycluster/manifests/environment.py)
        "FQ_RAY_IP": _HOST,
        "RAY_IP": _HOST,
        "RAY_PORT": _PORT,
        "RAY_ADDRESS": rf"{_HOST}:{_PORT}",
        "RAY_CLUSTER_NAME": _DNS,
        "RAY_CLUSTER_NAMESPACE": _DNS,
        "RAY_USAGE_STATS_KUBERAY_IN_USE": "[01]",
        "RAY_USAGE_STATS_EXTRA_TAGS": rf"kuberay_version=[A-Za-z0-9.]{{1,32}};kuberay_crd={_WORD}",
        "RAY_USAGE_STATS_ENABLED": "[01]",
        "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": "[01]",
        "RAY_timeout_ms_task_wait_for_death_info": _NUMBER,
        "RAY_gcs_server_request_timeout_seconds": _NUMBER,
        "RAY_SERVE_KV_TIMEOUT_S": _NUMBER,
        "RAY_enable_autoscaler_v2": "[01]|true|false",
        "RAY_external_storage_namespace": rf"{_UID}|{_DNS}",
        "RAY_gcs_rpc_server_reconnect_timeout_s": _NUMBER,
        "RAY_START_ULIMIT_OPEN_FILES": _NUMBER,
        # in pods of TrainingJobs (trainingjob/manifests/environment.py)
        "RAYTIDE_JOB_NAME": _DNS,
        "RAYTIDE_ROLE": _WORD,
        "RAYTIDE_INDEX": _NUMBER,
        "RAYTIDE_MEMBERSHIP_DIR": "/etc/raytide/membership",
        "RAYTIDE_MASTER_ENDPOINT": _ENDPOINTS,
        "TRAINING_ROLE": _WORD,
        "PADDLE_PORT": _PORT,
        "PADDLE_CURRENT_ENDPOINT": _ENDPOINTS,
        "PADDLE_TRAINERS_NUM": _NUMBER,
        "PADDLE_WITH_GLOO": "[01]",
        "PADDLE_PSERVERS_IP_PORT_LIST": _ENDPOINTS,
        "PADDLE_TRAINER_ID": _NUMBER,
        "PADDLE_TRAINER_ENDPOINTS": _ENDPOINTS,
        "PET_NNODES": rf"{_NUMBER}:{_NUMBER}",
        "PET_NPROC_PER_NODE": _NUMBER,
        "PET_NODE_RANK": _NUMBER,
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": _ENDPOINTS,
        "PET_RDZV_ID": rf"{_UID}|{_DNS}",
        "PET_RDZV_CONF": "is_host=(?:true|false)",
        "PET_MAX_RESTARTS": _NUMBER,
    }.items()
}
"""Environment variables that Raytide and KubeRay set, and the form of their values; a value of another form is redacted.

Not among them: REDIS_PASSWORD, REDIS_USERNAME, RAY_REDIS_ADDRESS and RAY_AUTH_TOKEN, which are credentials or may contain them, and
KUBERAY_GEN_RAY_START_CMD, whose words are redacted as those of a command.
"""
START_COMMAND: Final = "KUBERAY_GEN_RAY_START_CMD"

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
_OPERATOR_FLAGS: Final = """
autoscaler-image autoscaler-mode autoscaler-rbac controllers enable-leader-election enable-metrics etcd-image feature-gates
gpu-resources health-probe-bind-address kubeconfig leader-election-lease-duration leader-election-namespace
leader-election-renew-deadline leader-election-retry-period log-format log-level log-stdout-encoder max-load metrics-addr
rebalance-gap reconcile-concurrency reservation-period sharing-period state-tracks-readiness tenants victims-per-trainer
watch-namespace
"""
HARMLESS_OPERATOR_FLAGS: Final = frozenset(_OPERATOR_FLAGS.split())
"""Flags of `raytide operator`; a test compares them with the command's."""
FLAGS: Final = (
    HARMLESS_START_PARAMS | HARMLESS_OPERATOR_FLAGS | {"cluster-name", "cluster-namespace", "gcs-address", "restarts"}
)
_COMMAND_WORDS: Final = """
/bin/bash /bin/sh /usr/bin/bash /usr/bin/env bash sh -c -l -lc -ec -lec -- - ray start stop raytide operator autoscaler
kuberay-autoscaler ulimit -n 65536 ${RAY_START_ULIMIT_OPEN_FILES:-65536} exec sleep infinity true false echo python python3 -m
-u wget curl grep timeout etcd torchrun paddle paddle_k8s start_new_trainer start_trainer start_pserver start_master
$(RAY_CLUSTER_NAME) $(RAY_CLUSTER_NAMESPACE)
"""
COMMAND_WORDS: Final = frozenset(_COMMAND_WORDS.split())
"""Words of commands that Raytide and KubeRay write, and names of common programs."""
ANNOTATION_FORMS: Final = {
    constants.FT_ENABLED_ANNOTATION: re.compile("true|false"),
    constants.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION: re.compile(rf"{_UID}|{_DNS}", re.ASCII),
    constants.FT_DELETION_TIMEOUT_ANNOTATION: re.compile(_NUMBER, re.ASCII),
    constants.OVERWRITE_CONTAINER_CMD_ANNOTATION: re.compile("true|false"),
    constants.ENABLE_SERVE_SERVICE_ANNOTATION: re.compile("true|false"),
    constants.DISABLE_PROVISIONED_HEAD_RESTART_ANNOTATION: re.compile("true|false"),
    constants.RECREATE_HASH_ANNOTATION: re.compile("[0-9A-Za-z]{1,64}", re.ASCII),
    constants.KUBERAY_VERSION_ANNOTATION: re.compile(r"v?[0-9][0-9A-Za-z.+-]{0,63}", re.ASCII),
    constants.AUTOSCALER_ANNOTATION: re.compile(_WORD, re.ASCII),
    constants.KEEP_FAILED_PODS_ANNOTATION: re.compile("true|false"),
    constants.ALLOW_INSECURE_ANNOTATION: re.compile(r"(?:authOptions|tlsOptions|networkPolicy|,| ){0,16}", re.ASCII),
    constants.NUM_OF_HOSTS_ANNOTATION: re.compile(_NUMBER, re.ASCII),
    trainingjob_constants.MEMBERSHIP_ANNOTATION: re.compile("[0-9a-f]{16}"),
    "controller-gen.kubebuilder.io/version": re.compile(r"v?[0-9][0-9A-Za-z.+-]{0,63}", re.ASCII),
    "deployment.kubernetes.io/revision": re.compile(_NUMBER, re.ASCII),
}
"""Annotations of Raytide, KubeRay and Kubernetes whose values stay, and the form of the value."""
RECORDS: Final[Mapping[str, tuple[Callable[[str], Any], Callable[[Any], str]]]] = {
    constants.AUTOSCALER_DECISION_ANNOTATION: (autoscaler_decision.parse_record, autoscaler_decision.encode_record),
    trainingjob_constants.SHARING_ANNOTATION: (sharing_record.parse_record, sharing_record.encode_record),
}
"""Annotations with a JSON text that the autoscaler or fair sharing wrote, and their parser and encoder."""
DROPPED_ANNOTATIONS: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
"""Copies of the object, with all that is redacted in it."""
DROPPED_FIELDS: Final = frozenset({"managedFields", "data", "binaryData", "stringData", "immutable"})

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
serviceName state observedGeneration lastUpdateTime
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

{{/* Written by tools/generators/chart.py from raytide/api/rbac_rules.py: change it there. */}}

{{- define "raytide.rules.watched" -}}
{{- if .Values.rayCluster.enabled }}
# to watch RayClusters
- apiGroups: ["ray.io"]
  resources: [rayclusters]
  verbs: [get, list, watch]
{{- end }}
{{- if .Values.rayCluster.enabled }}
# to report status and conditions
- apiGroups: ["ray.io"]
  resources: [rayclusters/status]
  verbs: [patch]
{{- end }}
{{- if .Values.rayCluster.enabled }}
# optional: to set owner references of pods where the admission plugin OwnerReferencesPermissionEnforcement is on (OpenShift)
- apiGroups: ["ray.io"]
  resources: [rayclusters/finalizers]
  verbs: [update]
{{- end }}
{{- if .Values.trainingJob.enabled }}
# to watch TrainingJobs
- apiGroups: ["paddlepaddle.org"]
  resources: [trainingjobs]
  verbs: [get, list, watch]
{{- end }}
{{- if .Values.trainingJob.enabled }}
# to report status and conditions
- apiGroups: ["paddlepaddle.org"]
  resources: [trainingjobs/status]
  verbs: [patch]
{{- end }}
{{- if .Values.trainingJob.enabled }}
# to scale jobs: only spec.trainer.replicas and the annotation with the decision are changed
- apiGroups: ["paddlepaddle.org"]
  resources: [trainingjobs]
  verbs: [patch]
{{- end }}
{{- if .Values.trainingJob.enabled }}
# optional: to delete jobs whose ttlSecondsAfterFinished has passed
- apiGroups: ["paddlepaddle.org"]
  resources: [trainingjobs]
  verbs: [delete]
{{- end }}
{{- if .Values.trainingJob.enabled }}
# optional: to set owner references of their pods where the admission plugin OwnerReferencesPermissionEnforcement is on (OpenShift)
- apiGroups: ["paddlepaddle.org"]
  resources: [trainingjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if .Values.trainingJob.enabled }}
# to watch the membership of jobs: only ConfigMaps with the operator's label are listed; and to see whether Cluster Autoscaler runs
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
{{- end }}
{{- if .Values.trainingJob.enabled }}
# to publish the addresses of a job's pods to its pods
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, patch]
{{- end }}
# to watch the pods of RayClusters and TrainingJobs
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# to create and delete the pods of RayClusters and TrainingJobs
- apiGroups: [""]
  resources: [pods]
  verbs: [create, delete]
{{- if .Values.trainingJob.enabled }}
# optional: to have kubelets update the membership files of a job's running pods at once: only an annotation is changed
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
{{- end }}
# to watch the services of heads and jobs
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch]
# to create the services of heads and jobs
- apiGroups: [""]
  resources: [services]
  verbs: [create]
{{- if and (.Values.rayCluster.enabled) (.Values.autoscaler.rbac) }}
# optional: to create the service accounts of autoscalers
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create]
{{- end }}
{{- if and (.Values.rayCluster.enabled) (.Values.autoscaler.rbac) }}
# optional: to create the role of each autoscaler, limited to its own RayCluster
- apiGroups: ["rbac.authorization.k8s.io"]
  resources: [roles]
  verbs: [get, create]
{{- end }}
{{- if and (.Values.rayCluster.enabled) (.Values.autoscaler.rbac) }}
# optional: to bind the role of each autoscaler to its service account
- apiGroups: ["rbac.authorization.k8s.io"]
  resources: [rolebindings]
  verbs: [get, create]
{{- end }}
{{- if .Values.rayCluster.enabled }}
# optional: to set and remove the finalizer of RayClusters with GCS fault tolerance in Redis, and to grant it to autoscalers: a role may grant only what its creator is granted. The operator never writes a spec
- apiGroups: ["ray.io"]
  resources: [rayclusters]
  verbs: [patch]
{{- end }}
{{- if and (.Values.rayCluster.enabled) (.Values.gcsFaultTolerance.redisCleanup) }}
# optional: to remove the state of the GCS from Redis before a RayCluster with fault tolerance is deleted
- apiGroups: ["batch"]
  resources: [jobs]
  verbs: [get, create]
{{- end }}
{{- if and (.Values.rayCluster.enabled) (.Values.tokenAuth.createSecrets) }}
# optional: to create the Secrets with the tokens of RayClusters with token authentication
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
{{- end }}
{{- if and (.Values.rayCluster.enabled) (contains "GCSFaultToleranceEmbeddedStorage=true" (include "raytide.featureGates" .)) }}
# optional: to create the volume claims of GCS fault tolerance with RocksDB, and keep or remove their owner
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, create, patch]
{{- end }}
{{- if and (.Values.rayCluster.enabled) (.Values.autoscaler.rbac) (eq .Values.autoscaler.mode "ray") }}
# optional: to grant it to Ray's autoscaler
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
{{- end }}
{{- if and (.Values.rayCluster.enabled) (.Values.autoscaler.rbac) (eq .Values.autoscaler.mode "ray") }}
# optional: to grant it to Ray's autoscaler, which resizes pods in place
- apiGroups: [""]
  resources: [pods/resize]
  verbs: [patch]
{{- end }}
{{- if .Values.rayCluster.enabled }}
# optional: to check when a quota has capacity for all hosts of a replica
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [get]
{{- end }}
{{- if .Values.trainingJob.enabled }}
# optional: to keep jobs within the quotas of their namespaces
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [list, watch]
{{- end }}
{{- if and (.Values.rayCluster.enabled) (.Values.autoscaler.rbac) (eq .Values.autoscaler.mode "raytide") }}
# optional: to grant it to autoscalers, which read whether a node is added for an unschedulable pod
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}
# optional: to record events
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- define "raytide.rules.own" -}}
# to elect one leader among the replicas of the operator
- apiGroups: ["coordination.k8s.io"]
  resources: [leases]
  verbs: [get, create, update]
{{- end -}}

{{- define "raytide.rules.cluster" -}}
# optional: to replace terminating pods on dead nodes, and share the capacity of nodes among jobs
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
{{- if .Values.trainingJob.enabled }}
# optional: to order jobs by priority
- apiGroups: ["scheduling.k8s.io"]
  resources: [priorityclasses]
  verbs: [list, watch]
{{- end }}
{{- if and (.Values.trainingJob.enabled) (.Values.sharing.tenants) }}
# optional: to read the tenants of jobs, which are labels of namespaces
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list, watch]
{{- end }}
{{- end -}}

{{- define "raytide.rules.everywhere" -}}
{{- if .Values.trainingJob.enabled }}
# optional: to compute the free capacity of nodes
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end }}
{{- end -}}

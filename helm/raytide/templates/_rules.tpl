{{/* Written by tools/chart.py from raytide/api/permissions.py: change it there. */}}

{{- define "raytide.rules.watched" -}}
# to know which RayClusters should exist
- apiGroups: ["ray.io"]
  resources: [rayclusters]
  verbs: [get, list, watch]
# to report status and conditions
- apiGroups: ["ray.io"]
  resources: [rayclusters/status]
  verbs: [patch]
# optional: to own pods where the admission plugin OwnerReferencesPermissionEnforcement is on (OpenShift)
- apiGroups: ["ray.io"]
  resources: [rayclusters/finalizers]
  verbs: [update]
# to know which TrainingJobs should exist
- apiGroups: ["paddlepaddle.org"]
  resources: [trainingjobs]
  verbs: [get, list, watch]
# to report status and conditions
- apiGroups: ["paddlepaddle.org"]
  resources: [trainingjobs/status]
  verbs: [patch]
# to share the cluster: spec.trainer.replicas and the record of why, nothing else
- apiGroups: ["paddlepaddle.org"]
  resources: [trainingjobs]
  verbs: [patch]
# optional: to remove jobs whose ttlSecondsAfterFinished is over
- apiGroups: ["paddlepaddle.org"]
  resources: [trainingjobs]
  verbs: [delete]
# optional: to own their pods where the admission plugin OwnerReferencesPermissionEnforcement is on (OpenShift)
- apiGroups: ["paddlepaddle.org"]
  resources: [trainingjobs/finalizers]
  verbs: [update]
# to see the membership of jobs: only those with our label are asked for
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
# to tell the pods of a job who the others are
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, patch]
# to see the pods of RayClusters and TrainingJobs
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# to make and remove the pods of RayClusters and TrainingJobs
- apiGroups: [""]
  resources: [pods]
  verbs: [create, delete]
# to see the services of heads and jobs
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch]
# to make the services of heads and jobs
- apiGroups: [""]
  resources: [services]
  verbs: [create]
# optional: to make the accounts under which autoscalers act
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create]
# optional: to give each autoscaler rights to its own RayCluster
- apiGroups: ["rbac.authorization.k8s.io"]
  resources: [roles]
  verbs: [get, create]
# optional: to give each autoscaler its role
- apiGroups: ["rbac.authorization.k8s.io"]
  resources: [rolebindings]
  verbs: [get, create]
# optional: to let go of deleted RayClusters that KubeRay's finalizer holds, and to pass it on to autoscalers: a role may grant only what its author has. The operator never writes a spec
- apiGroups: ["ray.io"]
  resources: [rayclusters]
  verbs: [patch]
{{- if eq .Values.autoscaler.mode "ray" }}
# optional: to pass it on to Ray's autoscaler
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
{{- end }}
{{- if eq .Values.autoscaler.mode "ray" }}
# optional: to pass it on to Ray's autoscaler, which resizes pods in place
- apiGroups: [""]
  resources: [pods/resize]
  verbs: [patch]
{{- end }}
# optional: to see when a quota has room again for all hosts of a replica
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [get]
# optional: to share no more with jobs than the quotas of their namespaces allow
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [list, watch]
{{- if eq .Values.autoscaler.mode "raytide" }}
# optional: to pass it on to autoscalers, which read whether a node comes for a pod that none can take
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}
# optional: to say what happened in `kubectl describe`
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- define "raytide.rules.own" -}}
# to make sure that only one operator acts
- apiGroups: ["coordination.k8s.io"]
  resources: [leases]
  verbs: [get, create, update]
{{- end -}}

{{- define "raytide.rules.cluster" -}}
# optional: to replace dying pods whose node is away, and share the room on nodes among jobs
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
# optional: to know which job comes before another
- apiGroups: ["scheduling.k8s.io"]
  resources: [priorityclasses]
  verbs: [list, watch]
{{- end -}}

{{- define "raytide.rules.everywhere" -}}
# optional: to know how much room is left on nodes
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end -}}

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
# to see heads and workers
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# to make and remove heads and workers
- apiGroups: [""]
  resources: [pods]
  verbs: [create, delete]
# to see the services of heads
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch]
# to make the services of heads
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
# optional: to pass it on: a role may grant only what its author has. The operator itself never writes a spec
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
# optional: to say what happened in `kubectl describe`
- apiGroups: ["events.k8s.io"]
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
# optional: to replace dying pods whose node is away
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
{{- end -}}

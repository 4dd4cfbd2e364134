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

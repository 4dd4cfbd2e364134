{{/* Values as the operator's flags. A changed value changes the pod template, and so rolls the pods. */}}
{{- define "raytide.args" -}}
- operator
{{- with include "raytide.watchNamespaces" . | fromJsonArray }}
- --watch-namespace={{ join "," . }}
{{- end }}
{{- if not (and .Values.rayCluster.enabled .Values.trainingJob.enabled) }}
- --controllers={{ ternary "raycluster" "trainingjob" .Values.rayCluster.enabled }}
{{- end }}
- --reconcile-concurrency={{ int .Values.reconcileConcurrency }}
- --log-level={{ .Values.logLevel }}
- --log-format={{ include "raytide.logFormat" . }}
- --enable-leader-election={{ ternary "true" "false" (eq (include "raytide.hasLeaderElection" .) "true") }}
{{- if include "raytide.hasLeaderElection" . }}
- --leader-election-lease-duration={{ .Values.leaderElection.leaseDuration }}
- --leader-election-renew-deadline={{ .Values.leaderElection.renewDeadline }}
- --leader-election-retry-period={{ .Values.leaderElection.retryPeriod }}
{{- end }}
- --health-probe-bind-address=:{{ int .Values.health.port }}
- --metrics-addr={{ if .Values.metrics.enabled }}:{{ int .Values.metrics.port }}{{ else }}0{{ end }}
- --autoscaler-mode={{ .Values.autoscaler.mode }}
- --autoscaler-image={{ default (include "raytide.image" .) .Values.autoscaler.image }}
{{- if .Values.tokenAuth.createSecrets }}
- --auth-secrets
{{- end }}
{{- if not .Values.autoscaler.rbac }}
- --autoscaler-rbac=false
{{- end }}
- --state-tracks-readiness={{ .Values.stateTracksReadiness }}
- --sharing-period={{ .Values.sharing.period }}
- --node-autoscaler={{ .Values.sharing.nodeAutoscaler }}
{{- with include "raytide.sharingArgs" . }}
{{ . }}
{{- end }}
{{- with .Values.trainingJob.etcdImage }}
- --etcd-image={{ . }}
{{- end }}
{{- with include "raytide.featureGates" . }}
- --feature-gates={{ . }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Settings that decide about a sharing pass, for the operator and for the page, which shows the effect of new jobs. */}}
{{- define "raytide.sharingArgs" -}}
{{- $args := list -}}
{{- with .Values.sharing.maxLoad -}}
{{- $loads := list -}}
{{- range $resource, $percent := . -}}{{- $loads = append $loads (printf "%s=%d" $resource (int $percent)) -}}{{- end -}}
{{- $args = append $args (printf "--max-load=%s" (join "," $loads)) -}}
{{- end -}}
{{- with .Values.sharing.gpuResources -}}{{- $args = append $args (printf "--gpu-resources=%s" (join "," .)) -}}{{- end -}}
{{- with .Values.sharing.rebalanceGap -}}{{- $args = append $args (printf "--rebalance-gap=%s" .) -}}{{- end -}}
{{- with .Values.sharing.victimsPerTrainer -}}{{- $args = append $args (printf "--victims-per-trainer=%d" (int .)) -}}{{- end -}}
{{- with .Values.sharing.reservationPeriod -}}{{- $args = append $args (printf "--reservation-period=%s" .) -}}{{- end -}}
{{- with .Values.sharing.tenants -}}{{- $args = append $args (printf "--tenants=%s" (toJson .)) -}}{{- end -}}
{{- toYaml $args -}}
{{- end -}}

{{/* Values as the operator's flags. A changed value changes the pod template, and so rolls the pods. */}}
{{- define "raytide.args" -}}
- operator
{{- with .Values.watchNamespaces }}
- --watch-namespace={{ join "," . }}
{{- end }}
- --reconcile-concurrency={{ int .Values.reconcileConcurrency }}
- --log-level={{ .Values.logLevel }}
- --enable-leader-election={{ .Values.leaderElection.enabled }}
{{- if .Values.leaderElection.enabled }}
- --leader-election-lease-duration={{ .Values.leaderElection.leaseDuration }}
- --leader-election-renew-deadline={{ .Values.leaderElection.renewDeadline }}
- --leader-election-retry-period={{ .Values.leaderElection.retryPeriod }}
{{- end }}
- --health-probe-bind-address=:{{ int .Values.health.port }}
- --metrics-addr={{ if .Values.metrics.enabled }}:{{ int .Values.metrics.port }}{{ else }}0{{ end }}
- --autoscaler-mode={{ .Values.autoscaler.mode }}
- --autoscaler-image={{ default (include "raytide.image" .) .Values.autoscaler.image }}
- --state-tracks-readiness={{ .Values.stateTracksReadiness }}
- --sharing-period={{ .Values.sharing.period }}
{{- with .Values.sharing.maxLoad }}
{{- $loads := list }}
{{- range $resource, $percent := . }}
{{- $loads = append $loads (printf "%s=%d" $resource (int $percent)) }}
{{- end }}
- --max-load={{ join "," $loads }}
{{- end }}
{{- with .Values.sharing.gpuResources }}
- --gpu-resources={{ join "," . }}
{{- end }}
{{- with .Values.sharing.rebalanceGap }}
- --rebalance-gap={{ . }}
{{- end }}
{{- with .Values.sharing.victimsPerTrainer }}
- --victims-per-trainer={{ int . }}
{{- end }}
{{- with .Values.sharing.reservationPeriod }}
- --reservation-period={{ . }}
{{- end }}
{{- with .Values.sharing.tenants }}
- --tenants={{ toJson . }}
{{- end }}
{{- with .Values.trainingJob.etcdImage }}
- --etcd-image={{ . }}
{{- end }}
{{- with .Values.featureGates }}
{{- $gates := list }}
{{- range $gate, $isOn := . }}
{{- $gates = append $gates (printf "%s=%t" $gate $isOn) }}
{{- end }}
- --feature-gates={{ join "," $gates }}
{{- end }}
{{- end -}}

{{/* Where replicas stand to each other: as the values say, else over hosts as far as possible. */}}
{{- define "raytide.spread" -}}
{{- $ours := dict "matchLabels" (include "raytide.selectorLabels" . | fromYaml) -}}
{{- $constraints := .Values.topologySpreadConstraints -}}
{{- if and (not $constraints) (gt (int .Values.replicas) 1) -}}
{{- $constraints = list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- end -}}
{{- if $constraints -}}
topologySpreadConstraints:
{{- range $constraints }}
- {{ toYaml (merge (dict) . (dict "labelSelector" $ours)) | nindent 2 | trim }}
{{- end }}
{{- end -}}
{{- end -}}

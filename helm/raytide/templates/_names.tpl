{{/* Names, labels and the image: everything that more than one template needs. */}}

{{- define "raytide.name" -}}
{{- /* All templates begin here; `helm upgrade --reuse-values` has none of the values that are newer than the release. */ -}}
{{- if not (and (hasKey .Values "crds") (hasKey .Values "labels") (hasKey .Values "ui")) -}}
{{- fail "values of this chart are missing, such as labels: upgrade with --reset-then-reuse-values instead of --reuse-values" -}}
{{- end -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of everything in the release's namespace. A release called "raytide" is not called
     "raytide-raytide"; "-metrics" behind it still makes a name of at most 63 characters. */}}
{{- define "raytide.fullname" -}}
{{- $name := include "raytide.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 54 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 54 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of what stands outside the release's namespace: two releases of one name in two namespaces do not meet. */}}
{{- define "raytide.globalName" -}}
{{- printf "%s-%s" .Release.Namespace (include "raytide.fullname" .) -}}
{{- end -}}

{{- define "raytide.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "raytide.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "raytide.selectorLabels" -}}
app.kubernetes.io/name: {{ include "raytide.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels that every object has, whatever it selects. */}}
{{- define "raytide.chartLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "raytide.labels" -}}
{{- $selected := include "raytide.selectorLabels" . | fromYaml -}}
{{- $component := dict "app.kubernetes.io/component" (default "operator" .Values.componentOverride) -}}
{{- toYaml (merge $selected .Values.labels $component (include "raytide.chartLabels" . | fromYaml)) -}}
{{- end -}}

{{/* Labels of a hook: it is not the operator, so no Service, PodDisruptionBudget or NetworkPolicy of the operator selects its pod. */}}
{{- define "raytide.hookLabels" -}}
{{- $own := dict "app.kubernetes.io/name" (printf "%s-hook" (include "raytide.name" . | trunc 58)) "app.kubernetes.io/instance" .Release.Name -}}
{{- toYaml (merge $own .Values.labels (include "raytide.chartLabels" . | fromYaml)) -}}
{{- end -}}

{{/* Labels of the page: it is not the operator either. */}}
{{- define "raytide.uiSelectorLabels" -}}
app.kubernetes.io/name: {{ printf "%s-ui" (include "raytide.name" . | trunc 60) }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "raytide.uiLabels" -}}
{{- $selected := include "raytide.uiSelectorLabels" . | fromYaml -}}
{{- $component := dict "app.kubernetes.io/component" "ui" -}}
{{- toYaml (merge $selected .Values.labels $component (include "raytide.chartLabels" . | fromYaml)) -}}
{{- end -}}

{{- define "raytide.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The subject of every binding. */}}
{{- define "raytide.subject" -}}
- kind: ServiceAccount
  name: {{ include "raytide.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

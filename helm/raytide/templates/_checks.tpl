{{/* Values that the schema cannot judge: of KubeRay's chart what would be ignored, and what contradicts itself. Nothing is ignored
     without a word: it fails here, or the notes report it. */}}
{{- define "raytide.check" -}}
{{- $logging := default dict .Values.logging -}}
{{- if regexMatch "(^|/)kuberay/operator$" .Values.image.repository -}}
{{- fail (printf "image.repository: %s is KubeRay's operator: set image.repository and image.tag to an image of Raytide" .Values.image.repository) -}}
{{- end -}}
{{- if or $logging.baseDir $logging.fileName -}}
{{- fail "logging.baseDir, logging.fileName: logs go to standard error only: remove them" -}}
{{- end -}}
{{- with .Values.batchScheduler -}}
{{- if .enabled -}}{{- fail "batchScheduler.enabled: batch schedulers are not supported yet: remove it" -}}{{- end -}}
{{- if not (has (default "" .name) (list "" "default")) -}}
{{- fail (printf "batchScheduler.name: %s is not supported yet, nor any other batch scheduler: remove it" .name) -}}
{{- end -}}
{{- end -}}
{{- if dig "enabled" false (default dict .Values.configuration) -}}
{{- fail "configuration.enabled: sidecar containers, environment, labels and annotations for all pods are not supported yet: put them into the templates of RayClusters" -}}
{{- end -}}
{{- if dig "enabled" false (default dict .Values.nodeEventForwarder) -}}
{{- fail "nodeEventForwarder.enabled: events of nodes are not forwarded: remove it" -}}
{{- end -}}
{{- if not (has (default "" .Values.operatorCommand) (list "" "/manager")) -}}
{{- fail (printf "operatorCommand: %s is not in Raytide's image: remove it" .Values.operatorCommand) -}}
{{- end -}}
{{- if .Values.useKubernetesProxy -}}
{{- fail "useKubernetesProxy: it is for RayJob and RayService, which Raytide does not manage: remove it" -}}
{{- end -}}
{{- if and .Values.watchNamespace .Values.watchNamespaces (ne (sortAlpha .Values.watchNamespace | toJson) (sortAlpha .Values.watchNamespaces | toJson)) -}}
{{- fail "watchNamespace, watchNamespaces: they differ, and are two names of the same value: set one of them" -}}
{{- end -}}
{{- if and (eq (toString .Values.crNamespacedRbacEnable) "false") (not .Values.singleNamespaceInstall) -}}
{{- if include "raytide.watchNamespaces" . | fromJsonArray -}}
{{- fail "crNamespacedRbacEnable: false applies with singleNamespaceInstall only: set that, or rbac.create to false" -}}
{{- end -}}
{{- end -}}
{{- if and (eq (toString .Values.hostUsers) "false") (semverCompare "<1.33-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "hostUsers: false needs Kubernetes 1.33, this is %s: remove it" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and .Values.metrics.enabled .Values.metrics.serviceMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) -}}
{{- fail "networkPolicy.metricsFrom: no pod may read metrics, so metrics.serviceMonitor.enabled has no effect: name your Prometheus, for example with --set-json 'networkPolicy.metricsFrom=[{\"namespaceSelector\":{\"matchLabels\":{\"kubernetes.io/metadata.name\":\"monitoring\"}}}]', or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- if and .Values.metrics.prometheusRule.enabled (not .Values.metrics.enabled) -}}
{{- fail "metrics.prometheusRule.enabled: the operator has no metrics, so that the alert RaytideOperatorAbsent would fire: set metrics.enabled to true" -}}
{{- end -}}
{{- if .Values.ui.enabled -}}
{{- if and .Values.ui.ingress.enabled (not .Values.ui.ingress.host) -}}
{{- fail "ui.ingress.host: required with ui.ingress.enabled: set it to the host name of the page" -}}
{{- end -}}
{{- if and .Values.ui.ingress.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.uiFrom) -}}
{{- fail "networkPolicy.uiFrom: no pod may reach the page, so ui.ingress.enabled has no effect: name your ingress controller, for example with --set-json 'networkPolicy.uiFrom=[{\"namespaceSelector\":{\"matchLabels\":{\"kubernetes.io/metadata.name\":\"ingress-nginx\"}}}]', or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- end -}}
{{- end -}}

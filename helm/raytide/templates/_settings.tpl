{{/* Settings that more than one value decides: those of this chart and those that KubeRay's chart has for the same. A template can
     return only text, so a switch is "true" or empty, and a list is JSON. */}}

{{/* Namespaces to watch, in JSON; empty means all. */}}
{{- define "raytide.watchNamespaces" -}}
{{- $names := default .Values.watchNamespaces .Values.watchNamespace -}}
{{- if and .Values.singleNamespaceInstall (not $names) -}}
{{- $names = list .Release.Namespace -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{- define "raytide.hasLeaderElection" -}}
{{- if and .Values.leaderElection.enabled (ne (toString .Values.leaderElectionEnabled) "false") -}}true{{- end -}}
{{- end -}}

{{- define "raytide.createsRbac" -}}
{{- if and .Values.rbac.create (ne (toString .Values.rbacEnable) "false") -}}true{{- end -}}
{{- end -}}

{{- define "raytide.readsNodes" -}}
{{- if and .Values.rbac.readNodes (not .Values.singleNamespaceInstall) -}}true{{- end -}}
{{- end -}}

{{/* Whether the chart may create ClusterRoles and other cluster-scoped objects for access. */}}
{{- define "raytide.createsClusterScoped" -}}
{{- $isEverywhere := empty (include "raytide.watchNamespaces" . | fromJsonArray) -}}
{{- if and (include "raytide.createsRbac" .) (or $isEverywhere (include "raytide.readsNodes" .)) -}}true{{- end -}}
{{- end -}}

{{- define "raytide.logFormat" -}}
{{- $encoder := dig "stdoutEncoder" "" (default dict .Values.logging) -}}
{{- if $encoder -}}{{- ternary "json" "text" (eq $encoder "json") -}}{{- else -}}{{- .Values.logFormat -}}{{- end -}}
{{- end -}}

{{/* A map, or KubeRay's list of name and enabled, as the flag takes it. */}}
{{- define "raytide.featureGates" -}}
{{- $gates := list -}}
{{- if kindIs "slice" .Values.featureGates -}}
{{- range .Values.featureGates -}}{{- $gates = append $gates (printf "%s=%t" .name .enabled) -}}{{- end -}}
{{- else -}}
{{- range $gate, $isOn := .Values.featureGates -}}{{- $gates = append $gates (printf "%s=%t" $gate $isOn) -}}{{- end -}}
{{- end -}}
{{- join "," $gates -}}
{{- end -}}

{{- define "raytide.isOpenShift" -}}
{{- $isThere := .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}
{{- if or (eq .Values.openshift "force") (and (eq .Values.openshift "auto") $isThere) -}}true{{- end -}}
{{- end -}}

{{- define "raytide.podSecurityContext" -}}
{{- $context := .Values.podSecurityContext -}}
{{- if include "raytide.isOpenShift" . -}}{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- define "raytide.securityContext" -}}
{{- $context := .Values.securityContext -}}
{{- if include "raytide.isOpenShift" . -}}{{- $context = omit $context "runAsUser" "runAsGroup" -}}{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{/* As Kubernetes would mount it by itself, with a token that is worth nothing after an hour; the kubelet renews it. */}}
{{- define "raytide.credentials" -}}
- name: credentials
  projected:
    sources:
    - serviceAccountToken:
        path: token
        expirationSeconds: 3600
    - configMap:
        name: kube-root-ca.crt
        items:
        - {key: ca.crt, path: ca.crt}
    - downwardAPI:
        items:
        - path: namespace
          fieldRef: {fieldPath: metadata.namespace}
{{- end -}}

{{/* What of a pod every pod of the chart has, the operator's and those of hooks. */}}
{{- define "raytide.podSpec" -}}
automountServiceAccountToken: false   # pods that need a token mount a short-lived one
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if kindIs "bool" .Values.hostUsers }}
hostUsers: {{ .Values.hostUsers }}
{{- end }}
securityContext:
  {{- include "raytide.podSecurityContext" . | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Of a NetworkPolicy: what a pod that talks to the API server may reach; empty if egress is not limited. */}}
{{- define "raytide.apiServerEgress" -}}
{{- with .Values.networkPolicy.apiServer -}}
egress:
- ports:
  {{- range $.Values.networkPolicy.apiServerPorts }}
  - {protocol: TCP, port: {{ int . }}}
  {{- end }}
  to:
  {{- range . }}
  - ipBlock: {cidr: {{ . | quote }}}
  {{- end }}
{{- with $.Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- end -}}

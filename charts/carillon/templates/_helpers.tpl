{{- define "carillon.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "carillon.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "carillon.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The suffix keeps the operator's objects apart from those of a Broker that is called "carillon". */}}
{{- define "carillon.operator" -}}
{{- printf "%s-operator" (include "carillon.fullname" .) -}}
{{- end -}}

{{- define "carillon.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "carillon.operator" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is required when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "carillon.selector" -}}
app.kubernetes.io/name: {{ include "carillon.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "carillon.labels" -}}
{{ include "carillon.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The reference is only ever put together, so a registry with a port is no trouble. */}}
{{- define "carillon.image" -}}
{{- $repository := required "image.repository is required: no image is published yet; `make image` in a clone builds one and prints its name" .Values.image.repository -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- $repository -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* "true" when every namespace is served, which takes a ClusterRole. */}}
{{- define "carillon.everywhere" -}}
{{- if has "*" .Values.watchNamespaces -}}
{{- if gt (len .Values.watchNamespaces) 1 -}}
{{- fail "watchNamespaces: \"*\" means every namespace and stands alone; name the namespaces, or only \"*\"" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* The watched namespaces as a JSON object {"list": [...]}; empty when all are watched. */}}
{{- define "carillon.namespaces" -}}
{{- $list := .Values.watchNamespaces | uniq -}}
{{- if include "carillon.everywhere" . -}}
{{- $list = list -}}
{{- else if not $list -}}
{{- $list = list .Release.Namespace -}}
{{- end -}}
{{- dict "list" $list | toJson -}}
{{- end -}}

{{- define "carillon.testNamespace" -}}
{{- if .Values.test.namespace -}}
{{- .Values.test.namespace -}}
{{- else if include "carillon.everywhere" . -}}
{{- .Release.Namespace -}}
{{- else -}}
{{- (include "carillon.namespaces" . | fromJson).list | first -}}
{{- end -}}
{{- end -}}

{{- define "carillon.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "carillon.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

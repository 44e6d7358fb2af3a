{{- /* Prefix of all names. It has at most 40 characters, because Services and StatefulSets add suffixes. */ -}}
{{- define "taproot.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* (root, component) -> labels that never change. */ -}}
{{- define "taproot.selector" -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- /* (root, component) -> labels of an object. */ -}}
{{- define "taproot.labels" -}}
{{ include "taproot.selector" . }}
app.kubernetes.io/part-of: taproot
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* (root, component, name, labels, annotations, namespace) -> metadata of an object. Default namespace: the release's; `none`: a cluster-wide object. */ -}}
{{- define "taproot.metadata" -}}
{{- $namespace := .namespace | default .root.Release.Namespace -}}
name: {{ .name }}
{{- if ne $namespace "none" }}
namespace: {{ $namespace }}
{{- end }}
labels:
  {{- merge (include "taproot.labels" . | fromYaml) (.labels | default dict) | toYaml | nindent 2 }}
{{- with merge (deepCopy (.annotations | default dict)) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* (root, image) -> reference of an image. The first part of a name is a registry if it has a dot or a port, or is `localhost`. */ -}}
{{- define "taproot.image" -}}
{{- $repository := .image.repository -}}
{{- with .image.registry | default .root.Values.global.imageRegistry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") -}}
{{- end -}}
{{- if .image.digest -}}
{{ $repository }}@{{ .image.digest }}
{{- else -}}
{{ $repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "taproot.apiHost" -}}
{{ include "taproot.fullname" . }}-api.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- /* (scheme, host, port) -> host, with the port unless it is the scheme's default. */ -}}
{{- define "taproot.authority" -}}
{{- .host -}}
{{- if ne (int .port) (ternary 443 80 (eq .scheme "https")) -}}:{{ int .port }}{{- end -}}
{{- end -}}

{{- define "taproot.baseUrl" -}}
{{- if .Values.baseUrl -}}
{{ .Values.baseUrl }}
{{- else -}}
{{- $scheme := ternary "https" "http" (ne .Values.api.tls.existingSecret "") -}}
{{ $scheme }}://{{ include "taproot.authority" (dict "scheme" $scheme "host" (include "taproot.apiHost" .) "port" .Values.api.service.port) }}
{{- end -}}
{{- end -}}

{{- /* The same rule as the default of `registry.scheme`. */ -}}
{{- define "taproot.registryScheme" -}}
{{- $set := ((.Values.config).registry).scheme -}}
{{- if $set -}}{{ $set }}
{{- else if or .Values.registry.tls.existingSecret (hasPrefix "https:" (include "taproot.baseUrl" .)) -}}https
{{- else -}}http
{{- end -}}
{{- end -}}

{{- define "taproot.registryHost" -}}
{{- if .Values.registry.host -}}
{{ .Values.registry.host }}
{{- else -}}
{{- $host := printf "%s-registry.%s.svc.%s" (include "taproot.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{ include "taproot.authority" (dict "scheme" (include "taproot.registryScheme" .) "host" $host "port" .Values.registry.service.port) }}
{{- end -}}
{{- end -}}

{{- /* Host names of the API and the registry host without ports, as routes have them. */ -}}
{{- define "taproot.apiHostname" -}}
{{ (urlParse (include "taproot.baseUrl" .)).hostname }}
{{- end -}}
{{- define "taproot.registryHostname" -}}
{{ (urlParse (printf "http://%s" (include "taproot.registryHost" .))).hostname }}
{{- end -}}

{{- define "taproot.hasUpstream" -}}
{{- if or .Values.upstream.enabled .Values.upstream.external.url -}}true{{- end -}}
{{- end -}}

{{- define "taproot.mirrorNamespace" -}}
{{ .Values.kubernetes.mirror.namespace | default .Release.Namespace }}
{{- end -}}

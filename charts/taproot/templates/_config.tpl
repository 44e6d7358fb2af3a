{{- /* The client URLs of etcd's members. */ -}}
{{- define "taproot.etcdEndpoints" -}}
{{- if .Values.etcd.enabled -}}
{{- $fullname := include "taproot.fullname" . -}}
{{- range $i := until (int .Values.etcd.replicas) }}
- https://{{ $fullname }}-etcd-{{ $i }}.{{ $fullname }}-etcd.{{ $.Release.Namespace }}.svc.{{ $.Values.clusterDomain }}:2379
{{- end -}}
{{- else -}}
{{- toYaml .Values.etcd.external.endpoints }}
{{- end -}}
{{- end -}}

{{- /* Configuration of all roles. Paths are those of the mounts in `taproot.volumeMounts`. */ -}}
{{- define "taproot.config" -}}
{{- $external := .Values.etcd.external -}}
baseUrl: {{ include "taproot.baseUrl" . }}
{{- if .Values.api.tls.existingSecret }}
api:
  tls: { certFile: /etc/taproot/api-tls/tls.crt, keyFile: /etc/taproot/api-tls/tls.key }
{{- end }}
registry:
  host: {{ include "taproot.registryHost" . }}
  {{- if .Values.registry.tls.existingSecret }}
  tls: { certFile: /etc/taproot/registry-tls/tls.crt, keyFile: /etc/taproot/registry-tls/tls.key }
  {{- end }}
  {{- if .Values.upstream.enabled }}
  upstream:
    url: https://{{ include "taproot.fullname" . }}-upstream.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:5443
    username: taproot
    passwordFile: /etc/taproot/secrets/upstream/password
    caFile: /etc/taproot/secrets/upstream/ca.crt
  {{- else if .Values.upstream.external.url }}
  upstream:
    url: {{ .Values.upstream.external.url }}
    {{- with .Values.upstream.external.prefix }}
    prefix: {{ . | quote }}
    {{- end }}
    {{- with .Values.upstream.external.username }}
    username: {{ . | quote }}
    passwordFile: /etc/taproot/secrets/upstream/password
    {{- end }}
    {{- if .Values.upstream.external.caSecret }}
    caFile: /etc/taproot/secrets/upstream/ca.crt
    {{- end }}
    redirects: {{ .Values.upstream.external.redirects }}
  {{- end }}
store:
  kind: etcd
  etcd:
    endpoints:
      {{- include "taproot.etcdEndpoints" . | trim | nindent 6 }}
    {{- if .Values.etcd.enabled }}
    tls: { caFile: /etc/taproot/secrets/etcd/ca.crt, certFile: /etc/taproot/secrets/etcd/tls.crt, keyFile: /etc/taproot/secrets/etcd/tls.key }
    {{- else }}
    prefix: {{ $external.prefix | quote }}
    {{- if $external.tlsSecret }}
    tls:
      caFile: /etc/taproot/secrets/etcd/ca.crt
      {{- if $external.clientCertificate }}
      certFile: /etc/taproot/secrets/etcd/tls.crt
      keyFile: /etc/taproot/secrets/etcd/tls.key
      {{- end }}
    {{- end }}
    {{- with $external.username }}
    username: {{ . | quote }}
    passwordFile: /etc/taproot/secrets/etcd/password
    {{- end }}
    {{- end }}
encryption:
  keyFile: /etc/taproot/secrets/encryption/key
{{- $operators := .Values.operators }}
{{- if .Values.admin.enabled }}
{{- $admin := printf "system:serviceaccount:%s:%s-admin" .Release.Namespace (include "taproot.fullname" .) }}
{{- $operators = prepend $operators (dict "subject" $admin) }}
{{- end }}
bootstrap:
  operators: {{- $operators | default list | toYaml | nindent 4 }}
kubernetes:
  {{- with .Values.kubernetes.issuer }}
  issuer: {{ . }}
  {{- end }}
  tokenFile: /var/run/secrets/taproot/kubernetes/token
issuers:
  - jwksUri: {{ .Values.kubernetes.jwksUri }}
    caFile: /var/run/secrets/taproot/kubernetes/ca.crt
    tokenFile: /var/run/secrets/taproot/kubernetes/token
    allowPrivate: true
  {{- with .Values.issuers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* Additional configuration of the controller. */ -}}
{{- define "taproot.controllerConfig" -}}
kubernetes:
  {{- with .Values.kubernetes.clusterId }}
  clusterId: {{ . | quote }}
  {{- end }}
  mirror:
    enabled: {{ .Values.kubernetes.mirror.enabled }}
    namespace: {{ include "taproot.mirrorNamespace" . }}
    rootGroups: {{- .Values.kubernetes.mirror.rootGroups | toYaml | nindent 6 }}
    limit: {{ int .Values.kubernetes.mirror.limit }}
  lease:
    namespace: {{ .Release.Namespace }}
    name: {{ include "taproot.fullname" . }}-controller
  pullSecrets:
    enabled: {{ .Values.kubernetes.pullSecrets.enabled }}
{{- end -}}

{{- /* (root, parts) -> one file of the configuration: the chart's settings, merged over `config`. */ -}}
{{- define "taproot.configFile" -}}
{{- $file := deepCopy .root.Values.config -}}
{{- range .parts -}}
{{- $file = mergeOverwrite $file (fromYaml .) -}}
{{- end -}}
{{- toYaml $file -}}
{{- end -}}

{{- /* (root, file) -> the text of a file. A change rolls the pods of the roles that use it. */ -}}
{{- define "taproot.configText" -}}
{{- $parts := list (include "taproot.config" .root) -}}
{{- if eq .file "controller.yaml" -}}
{{- $parts = append $parts (include "taproot.controllerConfig" .root) -}}
{{- end -}}
{{- include "taproot.configFile" (dict "root" .root "parts" $parts) -}}
{{- end -}}

{{- /* The data of the ConfigMap. */ -}}
{{- define "taproot.configFiles" -}}
taproot.yaml: |
  {{- include "taproot.configText" (dict "root" . "file" "taproot.yaml") | nindent 2 }}
{{- if .Values.controller.enabled }}
controller.yaml: |
  {{- include "taproot.configText" (dict "root" . "file" "controller.yaml") | nindent 2 }}
{{- end }}
{{- end -}}

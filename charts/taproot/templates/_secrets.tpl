{{- /*
Names of Secrets: the configured one, else the one that the Job creates. Templates contain no secret and use no lookup, so each rendering gives the same bytes.
*/ -}}
{{- define "taproot.secret.encryption" -}}
{{ .Values.encryption.existingSecret | default (printf "%s-encryption" (include "taproot.fullname" .)) }}
{{- end -}}
{{- define "taproot.secret.authority" -}}
{{ include "taproot.fullname" . }}-authority
{{- end -}}
{{- define "taproot.secret.etcdServer" -}}
{{ .Values.etcd.tls.serverSecret | default (printf "%s-etcd-server" (include "taproot.fullname" .)) }}
{{- end -}}
{{- define "taproot.secret.etcdClient" -}}
{{- if .Values.etcd.enabled -}}
{{ .Values.etcd.tls.clientSecret | default (printf "%s-etcd-client" (include "taproot.fullname" .)) }}
{{- else -}}
{{ .Values.etcd.external.tlsSecret }}
{{- end -}}
{{- end -}}
{{- define "taproot.secret.upstream" -}}
{{ .Values.upstream.existingSecret | default (printf "%s-upstream" (include "taproot.fullname" .)) }}
{{- end -}}
{{- define "taproot.secret.upstreamTls" -}}
{{ .Values.upstream.tlsSecret | default (printf "%s-upstream-tls" (include "taproot.fullname" .)) }}
{{- end -}}

{{- /* The Secrets that the Job creates, in the format of `taproot init-secrets`: a list under `secrets`. */ -}}
{{- define "taproot.wantedSecrets" -}}
{{- $fullname := include "taproot.fullname" . -}}
{{- $inside := printf "%s.svc" .Release.Namespace -}}
{{- $wanted := list -}}
{{- $certificates := list -}}
{{- if not .Values.encryption.existingSecret -}}
{{- $wanted = append $wanted (dict "kind" "encryption-key" "name" (include "taproot.secret.encryption" .)) -}}
{{- end -}}
{{- if .Values.etcd.enabled -}}
{{- if not .Values.etcd.tls.serverSecret -}}
{{- $peers := printf "*.%s-etcd.%s" $fullname $inside -}}
{{- $names := list $peers (printf "%s.%s" $peers .Values.clusterDomain) "localhost" -}}
{{- $certificates = append $certificates (dict "kind" "certificate" "name" (include "taproot.secret.etcdServer" .) "commonName" .Values.etcd.tls.peerCommonName "usages" (list "server" "client") "dnsNames" $names) -}}
{{- end -}}
{{- if not .Values.etcd.tls.clientSecret -}}
{{- $certificates = append $certificates (dict "kind" "certificate" "name" (include "taproot.secret.etcdClient" .) "commonName" "taproot" "usages" (list "client") "dnsNames" list) -}}
{{- end -}}
{{- end -}}
{{- if .Values.upstream.enabled -}}
{{- if not .Values.upstream.existingSecret -}}
{{- $wanted = append $wanted (dict "kind" "registry-password" "name" (include "taproot.secret.upstream" .) "username" "taproot") -}}
{{- end -}}
{{- if not .Values.upstream.tlsSecret -}}
{{- $service := printf "%s-upstream.%s" $fullname $inside -}}
{{- $names := list $service (printf "%s.%s" $service .Values.clusterDomain) -}}
{{- $certificates = append $certificates (dict "kind" "certificate" "name" (include "taproot.secret.upstreamTls" .) "commonName" "upstream" "usages" (list "server") "dnsNames" $names) -}}
{{- end -}}
{{- end -}}
{{- if $certificates -}}
{{- $authority := include "taproot.secret.authority" . -}}
{{- $wanted = append $wanted (dict "kind" "authority" "name" $authority "commonName" (printf "%s internal" $fullname)) -}}
{{- range $certificates -}}
{{- $wanted = append $wanted (set . "authority" $authority) -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "secrets" $wanted) -}}
{{- end -}}

{{- /* What a schema can't say. All faults are told at once. */ -}}
{{- define "taproot.validate" -}}
{{- $faults := list -}}
{{- $values := .Values -}}
{{- if and (not $values.etcd.enabled) (not $values.etcd.external.endpoints) -}}
{{- $faults = append $faults "etcd.external.endpoints is missing: etcd.enabled is false" -}}
{{- end -}}
{{- if and $values.registry.enabled (not (include "taproot.hasUpstream" .)) -}}
{{- $faults = append $faults "upstream.external.url is missing: upstream.enabled is false, and the registry host needs an upstream (or registry.enabled: false)" -}}
{{- end -}}
{{- range $name, $external := dict "etcd" $values.etcd.external "upstream" $values.upstream.external -}}
{{- if ne (empty $external.username) (empty $external.passwordSecret) -}}
{{- $faults = append $faults (printf "%s.external: username and passwordSecret come together" $name) -}}
{{- end -}}
{{- end -}}
{{- if not $values.initSecrets.enabled -}}
{{- range (include "taproot.wantedSecrets" . | fromYaml).secrets -}}
{{- if ne .kind "authority" -}}
{{- $faults = append $faults (printf "the Secret %s is nobody's to make: name one of your own, or set initSecrets.enabled" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $role := dict "api" $values.api "registry" $values.registry -}}
{{- if le (int $role.terminationGracePeriodSeconds) (int $role.drainSeconds) -}}
{{- $faults = append $faults (printf "%s.terminationGracePeriodSeconds is not more than %s.drainSeconds" $name $name) -}}
{{- end -}}
{{- end -}}
{{- range $name, $role := dict "api" $values.api "registry" $values.registry -}}
{{- if and $role.autoscaling.enabled (gt (int $role.autoscaling.minReplicas) (int $role.autoscaling.maxReplicas)) -}}
{{- $faults = append $faults (printf "%s.autoscaling.minReplicas is more than %s.autoscaling.maxReplicas" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if and $values.etcd.enabled $values.etcd.persistence.existingClaim (gt (int $values.etcd.replicas) 1) -}}
{{- $faults = append $faults "etcd.persistence.existingClaim is one claim, and each of the members needs its own" -}}
{{- end -}}
{{- range $name := list "httpRoute" "grpcRoute" -}}
{{- $route := index $values.api $name -}}
{{- if and $route.enabled (not $route.parentRefs) -}}
{{- $faults = append $faults (printf "api.%s.parentRefs is missing" $name) -}}
{{- end -}}
{{- end -}}
{{- if and $values.registry.enabled $values.registry.httpRoute.enabled (not $values.registry.httpRoute.parentRefs) -}}
{{- $faults = append $faults "registry.httpRoute.parentRefs is missing" -}}
{{- end -}}
{{- range $name := list "grpcIngress" "grpcRoute" -}}
{{- $door := index $values.api $name -}}
{{- if and $door.enabled (not $door.hosts) -}}
{{- $faults = append $faults (printf "api.%s.hosts is missing" $name) -}}
{{- end -}}
{{- end -}}
{{- if and $values.api.grpcRoute.enabled $values.api.httpRoute.enabled (eq (toJson $values.api.grpcRoute.parentRefs) (toJson $values.api.httpRoute.parentRefs)) -}}
{{- range $values.api.httpRoute.hosts | default (list (include "taproot.apiHostname" $)) -}}
{{- if has . $values.api.grpcRoute.hosts -}}
{{- $faults = append $faults (printf "api.grpcRoute: %s is a host of api.httpRoute at the same listener, and a Gateway takes only one of both there" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.api.ingress.enabled $values.api.grpcIngress.enabled -}}
{{- range $values.api.ingress.hosts | default (list (include "taproot.apiHostname" $)) -}}
{{- if has . $values.api.grpcIngress.hosts -}}
{{- $faults = append $faults (printf "api.grpcIngress: %s is a host of api.ingress, which speaks HTTP to the pods" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $faults -}}
{{- fail (printf "\n%s" (join "\n" $faults)) -}}
{{- end -}}
{{- end -}}

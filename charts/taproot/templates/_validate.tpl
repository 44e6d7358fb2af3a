{{- /* Checks that a schema cannot express. All errors are reported at once. */ -}}
{{- define "taproot.validate" -}}
{{- $faults := list -}}
{{- $values := .Values -}}
{{- if not $values.image.repository -}}
{{- $faults = append $faults "image.repository is missing: set it to the repository of your image of Taproot, such as registry.example.com/platform/taproot" -}}
{{- end -}}
{{- if and (not $values.etcd.enabled) (not $values.etcd.external.endpoints) -}}
{{- $faults = append $faults "etcd.external.endpoints is missing: set it, because etcd.enabled is false" -}}
{{- end -}}
{{- if and $values.registry.enabled (not (include "taproot.hasUpstream" .)) -}}
{{- $faults = append $faults "upstream.external.url is missing: set it, because upstream.enabled is false, or set registry.enabled to false" -}}
{{- end -}}
{{- range $name, $external := dict "etcd" $values.etcd.external "upstream" $values.upstream.external -}}
{{- if ne (empty $external.username) (empty $external.passwordSecret) -}}
{{- $faults = append $faults (printf "%s.external: set both username and passwordSecret, or none of them" $name) -}}
{{- end -}}
{{- end -}}
{{- if not $values.initSecrets.enabled -}}
{{- range (include "taproot.wantedSecrets" . | fromYaml).secrets -}}
{{- if ne .kind "authority" -}}
{{- $faults = append $faults (printf "the Secret %s would be missing: set the name of an existing Secret, or set initSecrets.enabled to true" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $role := dict "api" $values.api "registry" $values.registry -}}
{{- if le (int $role.terminationGracePeriodSeconds) (int $role.drainSeconds) -}}
{{- $faults = append $faults (printf "%s.terminationGracePeriodSeconds must be more than %s.drainSeconds" $name $name) -}}
{{- end -}}
{{- end -}}
{{- range $name, $role := dict "api" $values.api "registry" $values.registry -}}
{{- if and $role.autoscaling.enabled (gt (int $role.autoscaling.minReplicas) (int $role.autoscaling.maxReplicas)) -}}
{{- $faults = append $faults (printf "%s.autoscaling.minReplicas must not be more than %s.autoscaling.maxReplicas" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if and $values.etcd.enabled $values.etcd.persistence.existingClaim (gt (int $values.etcd.replicas) 1) -}}
{{- $faults = append $faults "etcd.persistence.existingClaim works with one member only: set etcd.replicas to 1, or leave it empty" -}}
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
{{- $endpoint := index $values.api $name -}}
{{- if and $endpoint.enabled (not $endpoint.hosts) -}}
{{- $faults = append $faults (printf "api.%s.hosts is missing" $name) -}}
{{- end -}}
{{- end -}}
{{- if and $values.api.grpcRoute.enabled $values.api.httpRoute.enabled (eq (toJson $values.api.grpcRoute.parentRefs) (toJson $values.api.httpRoute.parentRefs)) -}}
{{- range $values.api.httpRoute.hosts | default (list (include "taproot.apiHostname" $)) -}}
{{- if has . $values.api.grpcRoute.hosts -}}
{{- $faults = append $faults (printf "api.grpcRoute: %s is a host of api.httpRoute at the same listener: use another host or another listener" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.api.ingress.enabled $values.api.grpcIngress.enabled -}}
{{- range $values.api.ingress.hosts | default (list (include "taproot.apiHostname" $)) -}}
{{- if has . $values.api.grpcIngress.hosts -}}
{{- $faults = append $faults (printf "api.grpcIngress: %s is a host of api.ingress, which uses HTTP for its Service: use another host" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $faults -}}
{{- fail (printf "\n%s" (join "\n" $faults)) -}}
{{- end -}}
{{- end -}}

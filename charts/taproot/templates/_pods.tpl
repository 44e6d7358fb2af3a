{{- /* (root, component, values) -> scheduling of pods. */ -}}
{{- define "taproot.scheduling" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* (root, component, values) -> topology spread constraints. */ -}}
{{- define "taproot.spread" -}}
{{- $selector := dict "matchLabels" (include "taproot.selector" . | fromYaml) -}}
{{- $constraints := .values.topologySpreadConstraints -}}
{{- if not $constraints -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" -}}
{{- $constraints = append $constraints (dict "maxSkew" 1 "topologyKey" $key "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- end -}}
{{- end -}}
topologySpreadConstraints:
{{- range $constraints }}
  - {{- merge (deepCopy .) (dict "labelSelector" $selector) | toYaml | nindent 4 }}
{{- end }}
{{- end -}}

{{- /* (root, component, values) -> metadata of pods. */ -}}
{{- define "taproot.podMetadata" -}}
labels:
  {{- merge (include "taproot.selector" . | fromYaml) .values.podLabels .root.Values.pods.labels .root.Values.commonLabels | toYaml | nindent 2 }}
{{- end -}}

{{- define "taproot.podAnnotations" -}}
{{- merge (deepCopy .values.podAnnotations) .root.Values.pods.annotations | toYaml -}}
{{- end -}}

{{- /* (root, values) -> security context of a container. */ -}}
{{- define "taproot.containerSecurity" -}}
securityContext:
  {{- mergeOverwrite (deepCopy .root.Values.pods.containerSecurityContext) .values.containerSecurityContext | toYaml | nindent 2 }}
{{- end -}}

{{- /* (values) -> init containers. */ -}}
{{- define "taproot.initContainers" -}}
{{- with .values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "taproot.envFrom" -}}
{{- with .values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "taproot.podSecurity" -}}
securityContext:
  {{- merge (deepCopy .Values.pods.securityContext) (dict "seccompProfile" (dict "type" "RuntimeDefault")) | toYaml | nindent 2 }}
{{- end -}}

{{- /* (root, component, values) -> volumes of a role of Taproot. */ -}}
{{- define "taproot.volumes" -}}
- name: config
  configMap:
    name: {{ include "taproot.fullname" .root }}-config
- name: secrets
  projected:
    defaultMode: 288
    sources:
      - secret:
          name: {{ include "taproot.secret.encryption" .root }}
          items: [{ key: key, path: encryption/key }]
      {{- with include "taproot.secret.etcdClient" .root }}
      - secret:
          name: {{ . }}
          items:
            - { key: ca.crt, path: etcd/ca.crt }
            {{- if or $.root.Values.etcd.enabled $.root.Values.etcd.external.clientCertificate }}
            - { key: tls.crt, path: etcd/tls.crt }
            - { key: tls.key, path: etcd/tls.key }
            {{- end }}
      {{- end }}
      {{- if and (not .root.Values.etcd.enabled) .root.Values.etcd.external.passwordSecret }}
      - secret:
          name: {{ .root.Values.etcd.external.passwordSecret }}
          items: [{ key: password, path: etcd/password }]
      {{- end }}
      {{- $external := .root.Values.upstream.external }}
      {{- with ternary (include "taproot.secret.upstream" .root) $external.passwordSecret .root.Values.upstream.enabled }}
      - secret:
          name: {{ . }}
          items: [{ key: password, path: upstream/password }]
      {{- end }}
      {{- with ternary (include "taproot.secret.upstreamTls" .root) $external.caSecret .root.Values.upstream.enabled }}
      - secret:
          name: {{ . }}
          items: [{ key: ca.crt, path: upstream/ca.crt }]
      {{- end }}
# Token for requests of signing keys to the API server. It also names the cluster's issuer, and has no rights.
- name: kubernetes
  projected:
    defaultMode: 288
    sources:
      - serviceAccountToken: { path: token, expirationSeconds: 3600 }
      - configMap:
          name: kube-root-ca.crt
          items: [{ key: ca.crt, path: ca.crt }]
- name: tmp
  emptyDir: { sizeLimit: 256Mi }
# Spools of audit events, which each sink limits, and catalogues.
- name: data
  {{- with .values.catalogues }}
  {{- if .storageClassName }}
  ephemeral:
    volumeClaimTemplate:
      spec:
        accessModes: [ReadWriteOnce]
        storageClassName: {{ .storageClassName }}
        resources: { requests: { storage: {{ .size }} } }
  {{- else }}
  emptyDir: { sizeLimit: {{ .size }} }
  {{- end }}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- with .values.tls }}
{{- with .existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 288
{{- end }}
{{- end }}
{{- with concat .root.Values.extraVolumes (index .root.Values .component).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "taproot.volumeMounts" -}}
- { name: config, mountPath: /etc/taproot/config, readOnly: true }
- { name: secrets, mountPath: /etc/taproot/secrets, readOnly: true }
- { name: kubernetes, mountPath: /var/run/secrets/taproot/kubernetes, readOnly: true }
- { name: tmp, mountPath: /tmp }
- { name: data, mountPath: /var/lib/taproot }
{{- with .values.tls }}
{{- if .existingSecret }}
- { name: tls, mountPath: /etc/taproot/{{ $.component }}-tls, readOnly: true }
{{- end }}
{{- end }}
{{- with concat .root.Values.extraVolumeMounts (index .root.Values .component).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* (values, probes: a template with the chart's own) -> probes, with the values merged over them. */ -}}
{{- define "taproot.probes" -}}
{{- $own := include .probes . | fromYaml -}}
{{- range $name := list "startup" "liveness" "readiness" }}
{{ $name }}Probe:
  {{- mergeOverwrite (index $own $name) (index $.values.probes $name) | toYaml | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* A start can take as long as the store needs. A role is alive once it answers. */ -}}
{{- define "taproot.roleProbes" -}}
startup:
  httpGet: { path: /healthz, port: ops }
  periodSeconds: 2
  failureThreshold: 150
liveness:
  httpGet: { path: /healthz, port: ops }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readiness:
  httpGet: { path: /readyz, port: ops }
  periodSeconds: 3
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{- /* (root, component, values, file, port, token) -> the Deployment of a role of Taproot; `port` is 0 for roles with the ops port only. */ -}}
{{- define "taproot.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "taproot.metadata" (merge (dict "name" (printf "%s-%s" (include "taproot.fullname" .root) .component) "labels" .values.labels "annotations" .values.annotations) .) | nindent 2 }}
spec:
  {{- if not (.values.autoscaling).enabled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  strategy:
    {{- .values.strategy | default (dict "type" "RollingUpdate" "rollingUpdate" (dict "maxUnavailable" 0 "maxSurge" 1)) | toYaml | nindent 4 }}
  selector:
    matchLabels:
      {{- include "taproot.selector" . | nindent 6 }}
  template:
    metadata:
      {{- include "taproot.podMetadata" . | nindent 6 }}
        taproot.dev/metrics: "true"
      annotations:
        taproot.dev/config: {{ include "taproot.configText" . | sha256sum | trunc 16 | quote }}
        {{- with include "taproot.podAnnotations" . | fromYaml }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "taproot.fullname" .root }}-{{ .component }}
      automountServiceAccountToken: {{ .token }}
      # Otherwise Services set variables like TAPROOT_API_PORT.
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
      {{- include "taproot.podSecurity" .root | nindent 6 }}
      {{- include "taproot.scheduling" . | nindent 6 }}
      {{- include "taproot.spread" . | nindent 6 }}
      {{- include "taproot.initContainers" . | nindent 6 }}
      containers:
        - name: {{ .component }}
          image: {{ include "taproot.image" (dict "root" .root "image" .root.Values.image) | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [{{ .component }}, --config, /etc/taproot/config/{{ .file }}]
          {{- $drain := .values.drainSeconds | default 0 }}
          env:
            # After SIGTERM it still serves requests for the drain time. Then running requests have the grace time to finish.
            - { name: TAPROOT_STOP_DRAIN_SECONDS, value: {{ $drain | quote }} }
            - { name: TAPROOT_STOP_GRACE_SECONDS, value: {{ max 1 (sub (sub .values.terminationGracePeriodSeconds $drain) 5) | min 3600 | quote }} }
            {{- with .values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- include "taproot.envFrom" . | nindent 10 }}
          ports:
            {{- if .port }}
            - { name: {{ .component }}, containerPort: {{ .port }} }
            {{- end }}
            - { name: ops, containerPort: 9090 }
          {{- include "taproot.probes" (merge (dict "probes" "taproot.roleProbes") .) | nindent 10 }}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          {{- include "taproot.containerSecurity" . | nindent 10 }}
          volumeMounts:
            {{- include "taproot.volumeMounts" . | nindent 12 }}
        {{- with .values.extraContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
        {{- include "taproot.volumes" . | nindent 8 }}
{{- end -}}

{{- /* (root, component) -> a ServiceAccount without rights. */ -}}
{{- define "taproot.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- $account := dig "serviceAccount" dict (.values | default dict) }}
  {{- include "taproot.metadata" (merge (dict "name" (printf "%s-%s" (include "taproot.fullname" .root) .component)) $account .) | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}

{{- /* (root, component, values) -> PodDisruptionBudget. A single pod has none, because it would block the drain of its node. */ -}}
{{- define "taproot.disruptionBudget" -}}
{{- $pods := int .values.replicas -}}
{{- with .values.autoscaling -}}
{{- if .enabled -}}{{ $pods = int .minReplicas }}{{- end -}}
{{- end -}}
{{- $budget := .values.podDisruptionBudget -}}
{{- if and (gt $pods 1) $budget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "taproot.metadata" (merge (dict "name" (printf "%s-%s" (include "taproot.fullname" .root) .component)) .) | nindent 2 }}
spec:
  {{- if ne (toString $budget.minAvailable) "" }}
  minAvailable: {{ $budget.minAvailable }}
  {{- else }}
  maxUnavailable: {{ $budget.maxUnavailable }}
  {{- end }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "taproot.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- /* (root, component, values) -> HorizontalPodAutoscaler. */ -}}
{{- define "taproot.autoscaler" -}}
{{- $scaling := .values.autoscaling -}}
{{- if $scaling.enabled }}
{{- $name := printf "%s-%s" (include "taproot.fullname" .root) .component }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "taproot.metadata" (merge (dict "name" $name) .) | nindent 2 }}
spec:
  scaleTargetRef: { apiVersion: apps/v1, kind: Deployment, name: {{ $name }} }
  minReplicas: {{ $scaling.minReplicas }}
  maxReplicas: {{ $scaling.maxReplicas }}
  metrics:
    {{- range $resource, $percent := dict "cpu" $scaling.targetCPUUtilizationPercentage "memory" $scaling.targetMemoryUtilizationPercentage }}
    {{- if $percent }}
    - type: Resource
      resource: { name: {{ $resource }}, target: { type: Utilization, averageUtilization: {{ $percent }} } }
    {{- end }}
    {{- end }}
    {{- with $scaling.metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $scaling.behavior }}
  behavior:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* (root, component, values, ports) -> the Service of a role. */ -}}
{{- define "taproot.service" -}}
{{- $service := .values.service -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "taproot.metadata" (merge (dict "name" (printf "%s-%s" (include "taproot.fullname" .root) .component) "labels" $service.labels "annotations" $service.annotations) .) | nindent 2 }}
spec:
  type: {{ $service.type }}
  {{- if eq $service.type "LoadBalancer" }}
  {{- with $service.loadBalancerClass }}
  loadBalancerClass: {{ . }}
  {{- end }}
  {{- with $service.loadBalancerSourceRanges }}
  loadBalancerSourceRanges: {{ toJson . }}
  {{- end }}
  {{- end }}
  {{- if and $service.externalTrafficPolicy (ne $service.type "ClusterIP") }}
  externalTrafficPolicy: {{ $service.externalTrafficPolicy }}
  {{- end }}
  selector:
    {{- include "taproot.selector" . | nindent 4 }}
  ports:
    {{- range .ports }}
    - name: {{ .name }}
      port: {{ .port }}
      targetPort: {{ $.component }}
      {{- if and .nodePort (ne $service.type "ClusterIP") }}
      nodePort: {{ .nodePort }}
      {{- end }}
      {{- with .appProtocol }}
      appProtocol: {{ . }}
      {{- end }}
    {{- end }}
{{- end -}}

{{- define "taproot.etcdProbes" -}}
startup:
  httpGet: { path: /readyz, port: metrics }
  periodSeconds: 2
  failureThreshold: 150
liveness:
  httpGet: { path: /livez, port: metrics }
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
readiness:
  httpGet: { path: /readyz, port: metrics }
  periodSeconds: 5
  timeoutSeconds: 10
{{- end -}}

{{- define "taproot.upstreamProbes" -}}
startup:
  httpGet: { path: /, port: upstream, scheme: HTTPS }
  periodSeconds: 2
  failureThreshold: 60
liveness:
  httpGet: { path: /, port: upstream, scheme: HTTPS }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readiness:
  httpGet: { path: /, port: upstream, scheme: HTTPS }
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

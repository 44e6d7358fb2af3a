{{- /* (root, component, values) -> where pods run. */ -}}
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
{{- end -}}

{{- /* (root, component, values) -> how replicas are spread. */ -}}
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

{{- /* What every container is held to. */ -}}
{{- define "taproot.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "taproot.podSecurity" -}}
securityContext:
  {{- merge (deepCopy .Values.pods.securityContext) (dict "seccompProfile" (dict "type" "RuntimeDefault")) | toYaml | nindent 2 }}
{{- end -}}

{{- /* (root, component) -> volumes of a role of Taproot. */ -}}
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
# Shows the cluster's API server who asks for its token keys; it gives no rights.
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
{{- if ne .component "controller" }}
{{- with (index .root.Values .component).tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 288
{{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "taproot.volumeMounts" -}}
- { name: config, mountPath: /etc/taproot/config, readOnly: true }
- { name: secrets, mountPath: /etc/taproot/secrets, readOnly: true }
- { name: kubernetes, mountPath: /var/run/secrets/taproot/kubernetes, readOnly: true }
- { name: tmp, mountPath: /tmp }
{{- if ne .component "controller" }}
{{- if (index .root.Values .component).tls.existingSecret }}
- { name: tls, mountPath: /etc/taproot/{{ .component }}-tls, readOnly: true }
{{- end }}
{{- end }}
{{- with .root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Starting may take as long as the store does; a role is alive once it answers. */ -}}
{{- define "taproot.probes" -}}
startupProbe:
  httpGet: { path: /healthz, port: ops }
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet: { path: /healthz, port: ops }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: ops }
  periodSeconds: 3
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{- /* (root, component, values, file, port, token) -> the Deployment of a role of Taproot; `port` is 0 where it has none but that for operations. */ -}}
{{- define "taproot.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "taproot.metadata" (merge (dict "name" (printf "%s-%s" (include "taproot.fullname" .root) .component)) .) | nindent 2 }}
spec:
  replicas: {{ .values.replicas }}
  revisionHistoryLimit: 5
  # A new pod is ready before an old one goes.
  strategy:
    type: RollingUpdate
    rollingUpdate: { maxUnavailable: 0, maxSurge: 1 }
  selector:
    matchLabels:
      {{- include "taproot.selector" . | nindent 6 }}
  template:
    metadata:
      {{- include "taproot.podMetadata" . | nindent 6 }}
        taproot.dev/metrics: "true"
      annotations:
        taproot.dev/config: {{ include "taproot.configFiles" .root | sha256sum | trunc 16 | quote }}
        {{- with include "taproot.podAnnotations" . | fromYaml }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "taproot.fullname" .root }}-{{ .component }}
      automountServiceAccountToken: {{ .token }}
      # Services would set TAPROOT_API_PORT and the like.
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
      {{- include "taproot.podSecurity" .root | nindent 6 }}
      {{- include "taproot.scheduling" . | nindent 6 }}
      {{- include "taproot.spread" . | nindent 6 }}
      containers:
        - name: {{ .component }}
          image: {{ include "taproot.image" (dict "root" .root "image" .root.Values.image) | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [{{ .component }}, --config, /etc/taproot/config/{{ .file }}]
          {{- $drain := .values.drainSeconds | default 0 }}
          env:
            # Told to stop, it serves on while nothing sends it requests any more; then what runs may end.
            - { name: TAPROOT_STOP_DRAIN_SECONDS, value: {{ $drain | quote }} }
            - { name: TAPROOT_STOP_GRACE_SECONDS, value: {{ max 1 (sub (sub .values.terminationGracePeriodSeconds $drain) 5) | min 3600 | quote }} }
            {{- with .values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- if .port }}
            - { name: {{ .component }}, containerPort: {{ .port }} }
            {{- end }}
            - { name: ops, containerPort: 9090 }
          {{- include "taproot.probes" . | nindent 10 }}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          {{- include "taproot.containerSecurity" . | nindent 10 }}
          volumeMounts:
            {{- include "taproot.volumeMounts" . | nindent 12 }}
      volumes:
        {{- include "taproot.volumes" . | nindent 8 }}
{{- end -}}

{{- /* (root, component) -> a ServiceAccount without rights of its own. */ -}}
{{- define "taproot.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "taproot.metadata" (merge (dict "name" (printf "%s-%s" (include "taproot.fullname" .root) .component)) .) | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}

{{- /* (root, component, values) -> nodes are emptied one pod at a time. One pod alone has none: it would keep its node from being emptied. */ -}}
{{- define "taproot.disruptionBudget" -}}
{{- if gt (int .values.replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "taproot.metadata" (merge (dict "name" (printf "%s-%s" (include "taproot.fullname" .root) .component)) .) | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "taproot.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

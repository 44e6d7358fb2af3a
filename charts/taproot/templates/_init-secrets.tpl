{{- /* (root, component, values, name, wanted) -> the pod that creates Secrets. */ -}}
{{- define "taproot.initSecretsPod" -}}
metadata:
  {{- include "taproot.podMetadata" . | nindent 2 }}
  {{- with include "taproot.podAnnotations" . | fromYaml }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ .name }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  restartPolicy: OnFailure
  {{- include "taproot.podSecurity" .root | nindent 2 }}
  {{- include "taproot.scheduling" . | nindent 2 }}
  containers:
    - name: init-secrets
      image: {{ include "taproot.image" (dict "root" .root "image" .root.Values.image) | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [init-secrets, --wanted, {{ toJson .wanted | quote }}]
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      {{- include "taproot.containerSecurity" . | nindent 6 }}
      volumeMounts:
        - { name: tmp, mountPath: /tmp }
  volumes:
    - name: tmp
      emptyDir: { sizeLimit: 64Mi }
{{- end -}}

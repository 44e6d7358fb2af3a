{{- /* (scope, persistence) -> the claims of a StatefulSet's pods. They outlive it; their labels never change, since nothing of them may. */ -}}
{{- define "taproot.claims" -}}
persistentVolumeClaimRetentionPolicy: { whenDeleted: Retain, whenScaled: Retain }
volumeClaimTemplates:
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: data
      labels:
        {{- include "taproot.selector" .scope | nindent 8 }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .persistence.storageClass }}
      storageClassName: {{ . }}
      {{- end }}
      resources:
        requests:
          storage: {{ .persistence.size }}
{{- end -}}

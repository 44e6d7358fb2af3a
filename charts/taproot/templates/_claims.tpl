{{- /* (scope, persistence) -> volume claims of a StatefulSet. They remain after it. Their labels never change, because they are immutable. */ -}}
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

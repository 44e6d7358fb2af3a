{{- /* (root, component, name, endpoint, hosts, port) -> an Ingress to the role's Service. */ -}}
{{- define "taproot.ingress" -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  {{- include "taproot.metadata" (merge (dict "annotations" .endpoint.annotations) .) | nindent 2 }}
spec:
  {{- with .endpoint.className }}
  ingressClassName: {{ . }}
  {{- end }}
  {{- if .endpoint.tlsSecret }}
  tls:
    - hosts: {{- toYaml .hosts | nindent 8 }}
      secretName: {{ .endpoint.tlsSecret }}
  {{- end }}
  rules:
    {{- range .hosts }}
    - host: {{ . | quote }}
      http:
        paths:
          - path: /
            pathType: Prefix
            backend:
              service:
                name: {{ include "taproot.fullname" $.root }}-{{ $.component }}
                port: { name: {{ $.port }} }
    {{- end }}
{{- end -}}

{{- /* (root, component, name, endpoint, hosts, kind, servicePort) -> a route of the Gateway API to the role's Service. */ -}}
{{- define "taproot.route" -}}
apiVersion: gateway.networking.k8s.io/v1
kind: {{ .kind }}
metadata:
  {{- include "taproot.metadata" (merge (dict "annotations" .endpoint.annotations) .) | nindent 2 }}
spec:
  parentRefs:
    {{- toYaml .endpoint.parentRefs | nindent 4 }}
  hostnames:
    {{- toYaml .hosts | nindent 4 }}
  rules:
    - backendRefs:
        - name: {{ include "taproot.fullname" .root }}-{{ .component }}
          port: {{ .servicePort }}
{{- end -}}

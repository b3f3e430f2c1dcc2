{{- define "calibrant.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "calibrant.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "calibrant.labels" -}}
{{ include "calibrant.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Kubernetes shows no certificate of its own: where one is asked for, a probe sees that the port answers. */}}
{{- define "calibrant.probe" -}}
{{- if .root.Values.tls.clientCa -}}
tcpSocket: {port: http}
{{- else -}}
httpGet: {path: /v2/health/{{ .path }}, port: http{{ if .root.Values.tls.secret }}, scheme: HTTPS{{ end }}}
{{- end -}}
{{- end -}}

{{/* serve.toml: options of the values, then what the chart decides itself, then text with tables. */}}
{{- define "calibrant.settings" -}}
models = ["/models"]
host = "0.0.0.0"
port = 8000
{{- if .Values.grpc.enabled }}
grpc-port = {{ .Values.grpc.port }}
{{- end }}
{{- if .Values.tokensSecret }}
token-file = "/etc/calibrant-tokens/tokens"
{{- end }}
{{- if .Values.tls.secret }}
tls-cert = "/etc/calibrant-tls/tls.crt"
tls-key = "/etc/calibrant-tls/tls.key"
{{- end }}
{{- if .Values.tls.clientCa }}
tls-client-ca = "/etc/calibrant-client-ca/ca.crt"
ready-file = "/tmp/ready.json"
{{- end }}
{{- if .Values.feedbackLog.enabled }}
feedback-log = "/var/lib/calibrant/log"  # with a claim the pod's arguments say which folder
keep-gib = {{ .Values.feedbackLog.keepGib }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- with .Values.extraSettings }}

{{ . }}
{{- end }}
{{- end -}}

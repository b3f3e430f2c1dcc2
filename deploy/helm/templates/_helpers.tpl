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
{{- range $name, $value := .Values.settings }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- with .Values.extraSettings }}

{{ . }}
{{- end }}
{{- end -}}

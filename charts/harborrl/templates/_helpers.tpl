{{- define "harborrl.labels" -}}
app.kubernetes.io/name: harborrl
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "harborrl.selector" -}}
app.kubernetes.io/name: harborrl
app.kubernetes.io/component: operator
{{- end }}

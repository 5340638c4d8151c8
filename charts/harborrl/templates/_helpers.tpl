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

{{- /* What the operator does where jobs live. A test compares each verb with the calls that the code makes. */}}
{{- define "harborrl.rules.jobs" -}}
- apiGroups: [harborrl.dev]
  resources: [harborrljobs]
  verbs: [get, list, watch, delete]
- apiGroups: [harborrl.dev]
  resources: [harborrljobs/status]
  verbs: [patch]
# Owner references that block deletion need this where OwnerReferencesPermissionEnforcement is on.
- apiGroups: [harborrl.dev]
  resources: [harborrljobs/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims, namespaces]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
# Kueue's own words on why a trainer waits. Where there is no Kueue the rule gives nothing.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [list]
# A Role may give no more than the operator holds: of these rules, the one on configmaps.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, create, patch]
# It hands out these roles and no other, without holding their rights itself.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles]
  verbs: [bind]
  resourceNames: [harborrl-agent-server, harborrl-trainer]
{{- end }}
{{- /* Where sandboxes live: anchors and bindings whose job or namespace is gone. */}}
{{- define "harborrl.rules.sandboxes" -}}
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, delete]
# Admission compares the sandboxes of a job with what their namespace has.
- apiGroups: [""]
  resources: [resourcequotas, limitranges]
  verbs: [list]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings]
  verbs: [list, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles]
  verbs: [bind]
  resourceNames: [harborrl-sandboxes]
{{- end }}
{{- /* Of the cluster, and done without where the operator has no ClusterRole: do the nodes have room for the sandboxes, what does KubeRay know? */}}
{{- define "harborrl.rules.cluster" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
# The API server's addresses, which jobs must reach.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get]
  resourceNames: [kubernetes]
# Which fields of a RayCluster the installed KubeRay knows; without it the API server's strictness alone decides.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [get]
{{- end }}
{{- /* Where the operator itself lives. */}}
{{- define "harborrl.rules.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, update]
  resourceNames: [harborrl-operator]
# A name cannot be asked for before the object is there.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
{{- end }}
{{- /* A Role or ClusterRole of the operator and its binding: (dict "root" . "namespace" N "name" X "rules" TEMPLATES). */}}
{{- define "harborrl.role" -}}
{{- $kind := ternary "Role" "ClusterRole" (not (empty .namespace)) }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "harborrl.labels" .root | nindent 4 }}
rules:
{{- range .rules }}
  {{- include . $.root | nindent 2 }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "harborrl.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: harborrl-operator
    namespace: {{ .root.Release.Namespace | quote }}
{{- end }}
{{- define "harborrl.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "harborrl.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Of a ServiceAccount of the release's namespace. */}}
{{- define "harborrl.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

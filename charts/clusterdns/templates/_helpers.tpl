{{/* One operator per cluster: its cluster-wide objects have fixed names, and Helm refuses a second release that would share
them. They have a colon, which no `clusterdns-<name>` of a ClusterDNS can have. */}}
{{- define "clusterdns.operator" -}}
{{ .Values.nameOverride | default "clusterdns-operator" }}
{{- end }}

{{- define "clusterdns.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "clusterdns.operator" .) }}
{{- end }}

{{/* Strings between commas. toYaml quotes those that YAML would read as a number or as true or false. */}}
{{- define "clusterdns.list" -}}
{{- range $index, $item := . }}{{ if $index }}, {{ end }}{{ toYaml $item }}{{ end -}}
{{- end }}

{{/* What the Deployment selects by. It cannot be changed later. */}}
{{- define "clusterdns.selector" -}}
app.kubernetes.io/name: clusterdns-operator
app.kubernetes.io/instance: {{ .Release.Name | toYaml }}
{{- end }}

{{- define "clusterdns.labels" -}}
{{ include "clusterdns.selector" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: clusterdns
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "clusterdns.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Where the page of an alert is: its path in the repository, and the link where a value says where that is published. */}}
{{- define "clusterdns.runbook" -}}
{{- $page := printf "%s.md" (index . 1) -}}
runbook: docs/runbooks/{{ $page }}
{{- with (index . 0).Values.metrics.runbookBaseURL }}
runbook_url: {{ printf "%s/%s" (trimSuffix "/" .) $page | toYaml }}
{{- end }}
{{- end }}

{{/* A condition of each ClusterDNS for alerts. While no operator shows it, as between the starts of one that crashes (5
minutes at most), it is what the last one said. Once one has worked for 3 minutes, what it does not show is over. */}}
{{- define "clusterdns.condition" -}}
{{- $now := printf "max by (name) (clusterdns_operator_condition{condition=%q})" . -}}
({{ $now }} or last_over_time({{ $now }}[7m:30s]) unless on () (count_over_time((max(clusterdns_operator_is_reconciling) == 1)[3m:1m]) >= 3))
{{- end }}

{{/* Narrows a rule, where the values name instances, to the objects of those. A line of its own, or nothing. */}}
{{- define "clusterdns.ofInstances" -}}
{{- if .Values.instances }}
  resourceNames: [clusterdns-{{ join ", clusterdns-" .Values.instances }}]
{{- end }}
{{- end }}

{{/* The operator's ServiceAccount as the subject of a binding. */}}
{{- define "clusterdns.subject" -}}
subjects:
- kind: ServiceAccount
  name: {{ include "clusterdns.serviceAccount" . | toYaml }}
  namespace: {{ .Release.Namespace | toYaml }}
{{- end }}

{{/* What Pod Security `restricted` asks of a pod, and of a container. */}}
{{- define "clusterdns.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "clusterdns.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

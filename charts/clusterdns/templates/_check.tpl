{{/* What the schema of the values cannot see: values that contradict each other. */}}
{{- define "clusterdns.check" -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: with create: false, name the ServiceAccount that exists" -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor .Values.metrics.serviceMonitor -}}
{{- fail "metrics: podMonitor and serviceMonitor would both scrape every pod: choose one" -}}
{{- end -}}
{{- if .Values.clusterDNS.create -}}
{{- $name := .Values.clusterDNS.name -}}
{{- $service := dig "service" (dict) (.Values.clusterDNS.spec | default dict) -}}
{{- $namespace := dig "namespace" "kube-system" $service -}}
{{- $serviceName := dig "name" "kube-dns" $service -}}
{{- if and .Values.instances (not (has $name .Values.instances)) -}}
{{- fail (printf "clusterDNS.name: the operator may not run a ClusterDNS %q: add it to instances" $name) -}}
{{- end -}}
{{- if not (has $namespace .Values.workloadNamespaces) -}}
{{- fail (printf "clusterDNS.spec.service.namespace: the operator has no rights in %q: add it to workloadNamespaces" $namespace) -}}
{{- end -}}
{{- if and .Values.services (not (has $serviceName .Values.services)) -}}
{{- fail (printf "clusterDNS.spec.service.name: the operator may not change a Service %q: add it to services" $serviceName) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What the schema of the values cannot see: values that contradict each other. */}}
{{- define "clusterdns.check" -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: with create: false, name the ServiceAccount that exists" -}}
{{- end -}}
{{- if not (regexMatch "^([a-z0-9][a-z0-9.-]*(:[0-9]+)?/)?[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*$" .Values.image.repository) -}}
{{- fail (printf "image.repository: %q is no repository: write one without https:// and without a tag, such as registry.example/clusterdns (the tag is image.tag)" .Values.image.repository) -}}
{{- end -}}
{{- /* The operator does not start with an entry that names no image: the grammar is that of crds/src/image.rs. */ -}}
{{- $part := `[a-z0-9]+(\.?([_-]+\.?)*[a-z0-9]+)*` -}}
{{- $label := `[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?` -}}
{{- $hex := `[0-9A-Fa-f]{1,4}` -}}
{{- $ipv6 := printf `(%[1]s:){7}%[1]s|((%[1]s:){0,6}%[1]s)?::((%[1]s:){0,6}%[1]s)?` $hex -}}
{{- $host := printf `(%[1]s(\.%[1]s)*|\[(%[2]s)\])(:[0-9]{1,5})?` $label $ipv6 -}}
{{- range .Values.allowedImages -}}
{{- if not (regexMatch (printf `^((%[1]s|%[2]s)(/%[1]s)*/|(%[2]s/)?%[1]s(/%[1]s)*)$` $part $host) .) -}}
{{- fail (printf "allowedImages: %q is neither a repository without a tag nor a prefix that ends in /, such as registry.example/dns/" .) -}}
{{- end -}}
{{- end -}}
{{- /* An older operator does not know every flag that this chart writes, and would not start. A digest does not say its
version, and an upgrade that reuses values keeps it. */ -}}
{{- $tag := .Values.image.tag | default "" | trimPrefix "v" -}}
{{- $digest := .Values.image.digest | default "" -}}
{{- if and $digest (not $tag) -}}
{{- fail "image.digest: write the version that it is of as image.tag. At an upgrade write both again, or make both empty" -}}
{{- end -}}
{{- /* Without what follows the three numbers: mirrors write there what is no version. */ -}}
{{- with regexFind "^[0-9]+\\.[0-9]+\\.[0-9]+" $tag -}}
{{- $own := semver $.Chart.AppVersion -}}
{{- if semverCompare (printf "< %d.%d.0-0" $own.Major $own.Minor) . -}}
{{- $empty := ternary "write the new image.digest and image.tag, or make both empty" "leave image.tag empty" (ne $digest "") -}}
{{- fail (printf "image.tag: the programs of %s do not know all flags that the chart of %s writes: %s, or use the chart of %s" $tag $.Chart.AppVersion $empty $tag) -}}
{{- end -}}
{{- end -}}
{{- /* Values without an effect. */ -}}
{{- if and .Values.serviceAccountAnnotations (not .Values.serviceAccount.create) -}}
{{- fail "serviceAccountAnnotations: the chart creates no ServiceAccount (serviceAccount.create: false): annotate the one that exists" -}}
{{- end -}}
{{- if and .Values.namespaceNames.also (not .Values.namespaceNames.topLevelDomains) -}}
{{- fail "namespaceNames.also: nothing is done about these names: write Deny, Warn or Audit as namespaceNames.topLevelDomains" -}}
{{- end -}}
{{- if and .Values.people.aggregateToView (not .Values.people.clusterRoles) -}}
{{- fail "people.aggregateToView: the role that it is about is not created: set people.clusterRoles" -}}
{{- end -}}
{{- /* Before Kubernetes 1.34 the name of a Service begins with a letter. */ -}}
{{- if and .Values.metrics.serviceMonitor (regexMatch "^[0-9]" (.Values.nameOverride | default "")) -}}
{{- fail "nameOverride: the Service that metrics.serviceMonitor needs has this name, which must begin with a letter then" -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor .Values.metrics.serviceMonitor -}}
{{- fail "metrics: podMonitor and serviceMonitor would both scrape every pod: choose one" -}}
{{- end -}}
{{- /* Prometheus takes no sample that is older than 5 minutes, so an alert that something is missing would come and go. */ -}}
{{- if and .Values.metrics.prometheusRule (or .Values.metrics.podMonitor .Values.metrics.serviceMonitor) -}}
{{- $milliseconds := 0 -}}
{{- range regexFindAll "[0-9]+(ms|[smhdwy])" (.Values.metrics.interval | default "") -1 -}}
{{- $unit := get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000) (regexFind "[a-z]+" .) -}}
{{- $milliseconds = add $milliseconds (mul (regexFind "[0-9]+" . | atoi) $unit) -}}
{{- end -}}
{{- if gt $milliseconds 120000 -}}
{{- fail (printf "metrics.interval: the alerts of metrics.prometheusRule look at the last 5 minutes, and a scrape each %s is too rare for that: write 2m or less, or prometheusRule: false" .Values.metrics.interval) -}}
{{- end -}}
{{- end -}}
{{- /* A key twice is no YAML that every tool reads. */ -}}
{{- $own := include "clusterdns.labels" . | fromYaml -}}
{{- range $value, $labels := dict "podLabels" .Values.podLabels "metrics.labels" .Values.metrics.labels "metrics.dashboardLabels" .Values.metrics.dashboardLabels -}}
{{- range $key, $_ := $labels -}}
{{- if hasKey $own $key -}}
{{- fail (printf "%s: the chart sets the label %s itself: remove it" $value $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* The operator refuses a flag that is there twice, at every start. */ -}}
{{- $flags := dict "--dataplane-image" "image" "--dataplane-pull-policy" "dataplane.pullPolicy" "--dataplane-args" "dataplane.extraArgs"
  "--dataplane-env" "dataplane.extraEnv" "--allowed-images" "allowedImages" "--allowed-pod-labels" "allowedPodLabels"
  "--allowed-pod-annotations" "allowedPodAnnotations" "--certificates" "certificates.names" "--workload-namespaces" "workloadNamespaces"
  "--instances" "instances" "--lost-pods" "lostPods.enabled" "--http" "http" "--log-format" "logging.format" "--log-level" "logging.level"
  "--runbook-base-url" "metrics.runbookBaseURL" -}}
{{- $names := list "CLUSTERDNS_NAMESPACE" "CLUSTERDNS_POD_NAME" "CLUSTERDNS_NODE_NAME" -}}
{{- range $variable := .Values.extraEnv -}}
{{- if has .name $names -}}
{{- fail (printf "extraEnv: %s would be there twice: remove one (the chart sets CLUSTERDNS_NAMESPACE, CLUSTERDNS_POD_NAME and CLUSTERDNS_NODE_NAME itself)" .name) -}}
{{- end -}}
{{- /* These flags are always there, and count: the variable would have no effect. */ -}}
{{- $flag := printf "--%s" (trimPrefix "CLUSTERDNS_" .name | lower | replace "_" "-") -}}
{{- if and (hasPrefix "CLUSTERDNS_" .name) (has $flag (list "--dataplane-image" "--dataplane-pull-policy" "--workload-namespaces" "--http" "--log-format" "--log-level")) -}}
{{- fail (printf "extraEnv: the chart writes the flag of %s itself: set the value %s" $variable.name (get $flags $flag)) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- $flag := splitList "=" . | first -}}
{{- if has $flag (list "--namespace" "--pod-name" "--node-name") -}}
{{- fail (printf "extraArgs: the operator has this from its pod, and its rights are for that: remove %s" $flag) -}}
{{- end -}}
{{- with get $flags $flag -}}
{{- fail (printf "extraArgs: the chart writes %s itself: set the value %s" $flag .) -}}
{{- end -}}
{{- end -}}
{{- /* The operator refuses these too, at every start: it writes them for each data plane. */ -}}
{{- range .Values.dataplane.extraArgs -}}
{{- $flag := splitList "=" . | first -}}
{{- if has $flag (list "--config" "--config-map" "--config-dir" "--state-dir" "--pod-name" "--pod-uid" "--zone" "--region" "--drain-seconds" "--log-format" "--listen" "--http" "--manifests") -}}
{{- fail (printf "dataplane.extraArgs: the operator sets %s itself: remove it" $flag) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.dataplane.extraEnv -}}
{{- if has $name (list "POD_NAME" "POD_UID" "POD_ZONE" "POD_REGION") -}}
{{- fail (printf "dataplane.extraEnv: the operator sets %s itself: remove it" $name) -}}
{{- end -}}
{{- if hasPrefix "CLUSTERDNS_" $name -}}
{{- fail (printf "dataplane.extraEnv: %s is a flag: write it in dataplane.extraArgs" $name) -}}
{{- end -}}
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

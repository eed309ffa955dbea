//! Other objects of a cluster: the DNS before ours, and the kinds of other operators.

/// The Service of a cluster's DNS as kubeadm makes it, and the pods behind it.
pub fn old_dns(namespace: &str) -> String {
    format!("{OLD_SERVICE}---{OLD_DEPLOYMENT}").replace("kube-system", namespace)
}

pub const OLD_SERVICE: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIP: 10.96.0.10
  selector: {k8s-app: kube-dns}
  ports:
  - {name: dns, port: 53, protocol: UDP, targetPort: 53}
  - {name: dns-tcp, port: 53, protocol: TCP, targetPort: 53}
  - {name: metrics, port: 9153, protocol: TCP, targetPort: 9153}
"#;

const OLD_DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  replicas: 2
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      containers:
      - {name: coredns, image: coredns}
"#;

/// The kinds of the Prometheus operator, as far as the API server must know them. The PodMonitor is that of an older one,
/// without `scrapeClassicHistograms`.
pub const MONITORING_KINDS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: PodMonitor, plural: podmonitors, singular: podmonitor}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      selector: {type: object, x-kubernetes-preserve-unknown-fields: true},
      podMetricsEndpoints: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: prometheusrules.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: PrometheusRule, plural: prometheusrules, singular: prometheusrule}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

//! Examples at the end of `--help`.

pub(super) const ALL: &str = "\
Examples:
  See what a ClusterDNS would create, without a cluster:
    clusterdns-operator render -f dns.yaml

  Check every manifest of a GitOps repository; other kinds are passed over:
    clusterdns-operator check -f clusters -o sarif

  Make a ClusterDNS of the configuration of CoreDNS, kube-dns or dnsmasq:
    clusterdns-operator import --corefile Corefile > dns.yaml

  Ask a trial and the server that pods ask today the same questions:
    clusterdns-operator compare --with dns-trial --against kube-dns

  Run from a laptop against the cluster of a kubeconfig:
    clusterdns-operator run --kubeconfig ~/.kube/config \\
      --namespace clusterdns-system";

pub(super) const RUN: &str = "\
Example:
  Reconcile the cluster of a kubeconfig, with an image of your own:
    clusterdns-operator run --kubeconfig ~/.kube/config \\
      --namespace clusterdns-system \\
      --dataplane-image registry.example/clusterdns:0.1.0";

pub(super) const RENDER: &str = "\
Example:
  What an edit changes in the objects of a ClusterDNS:
    clusterdns-operator render -f dns.yaml > after.yaml
    diff before.yaml after.yaml";

pub(super) const CHECK: &str = "\
Examples:
  Every manifest below a folder:
    clusterdns-operator check -f clusters

  Standard input, for a pipeline that reads SARIF:
    helm template dns charts/clusterdns --kube-version 1.33 \\
      --set clusterDNS.create=true \\
      | clusterdns-operator check -f - -o sarif

Not checked: what only a cluster knows, such as whether the API server has the
kinds PodMonitor and PrometheusRule. The condition Accepted of the ClusterDNS
says that.

Exit status: 0 no errors (there may be warnings), 1 errors, 2 something could
not be read.";

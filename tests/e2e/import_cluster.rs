//! `import --from-cluster` against a real API server: it follows the Service to workloads and ConfigMaps, and writes nothing.

use std::process::Command;

use tests::control_plane::{ControlPlane, Setup};
use tests::fault_proxy::{FaultProxy, Requests, Seen};
use tests::helm::Tools;
use tests::kubelet::program;

/// CoreDNS as AKS has it, with an environment variable, and NodeLocal DNSCache beside it, which makes its Corefile of a
/// mounted one and mounts the ConfigMap of kube-dns. Nothing mounts `leftover`.
const OBJECTS: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec: {selector: {k8s-app: kube-dns}, ports: [{name: dns, port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns-upstream, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec: {selector: {k8s-app: kube-dns}, ports: [{name: dns, port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: leftover, namespace: kube-system}
data: {upstreamNameservers: '["192.0.2.66"]'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: node-local-dns, namespace: kube-system}
data:
  Corefile: |
    lab.example:53 {
        forward . 10.20.0.54
    }
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nodelocaldns, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: node-local-dns}}
  template:
    metadata: {labels: {k8s-app: node-local-dns}}
    spec:
      containers:
      - name: node-cache
        image: registry.example/node-cache:1
        args: [-localip, 169.254.20.10, -conf, /etc/Corefile, -upstreamsvc, kube-dns-upstream]
        volumeMounts:
        - {name: config-volume, mountPath: /etc/coredns}
        - {name: kube-dns-config, mountPath: /etc/kube-dns}
      volumes:
      - {name: config-volume, configMap: {name: node-local-dns, items: [{key: Corefile, path: Corefile.base}]}}
      - {name: kube-dns-config, configMap: {name: kube-dns, optional: true}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    . {
        kubernetes cluster.example in-addr.arpa ip6.arpa {
            pods insecure
        }
        forward . {$UPSTREAM}
        import custom/*.override
    }
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns-custom, namespace: kube-system}
data:
  a.override: "rewrite name old.corp.example new.corp.example\n"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-dns, namespace: kube-system}
data: {stubDomains: '{"corp.example": ["10.20.0.53"]}'}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      containers:
      - name: coredns
        image: registry.example/coredns:1
        args: [-conf, /etc/coredns/Corefile]
        env: [{name: UPSTREAM, value: 10.0.0.2}]
        volumeMounts:
        - {name: config, mountPath: /etc/coredns}
        - {name: custom, mountPath: /etc/coredns/custom}
      volumes:
      - {name: config, configMap: {name: coredns}}
      - {name: custom, configMap: {name: coredns-custom}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: kube-system}
spec:
  selector: {matchLabels: {app: other}}
  template:
    metadata: {labels: {app: other}}
    spec: {containers: [{name: other, image: registry.example/other:1, args: [--colour]}]}
"#;

/// kube-dns as GKE has it, in a namespace of its own.
const KUBE_DNS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: gke}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: gke, labels: {k8s-app: kube-dns}}
spec: {selector: {k8s-app: kube-dns}, ports: [{name: dns, port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-dns, namespace: gke}
data: {stubDomains: '{"lab.example": ["10.20.0.9"]}', upstreamNameservers: '["10.0.0.9"]'}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: kube-dns, namespace: gke}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      containers:
      - name: kubedns
        image: registry.example/kube-dns:1
        args: [--domain=gke.example., --dns-port=10053, --config-dir=/kube-dns-config]
        volumeMounts: [{name: config, mountPath: /kube-dns-config}]
      - name: dnsmasq
        image: registry.example/dnsmasq-nanny:1
        args: [-restartDnsmasq=true, --, -k, --cache-size=700, --server=/gke.example/127.0.0.1#10053]
      volumes: [{name: config, configMap: {name: kube-dns, optional: true}}]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn import_follows_the_service_to_its_corefile_and_writes_nothing() {
    let Some(mut plane) = ControlPlane::start(Setup::default()).await else { return };
    let Some(tools) = Tools::new(plane.kubeconfig()) else { return };
    let proxy = FaultProxy::start(&plane).await;
    let import = |more: &[&str]| {
        let output = Command::new(program("clusterdns-operator"))
            .args(["import", "--from-cluster", "--kubeconfig"])
            .arg(proxy.kubeconfig())
            .args(more)
            .output()
            .expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };

    let (_, why, code) = import(&[]);
    assert!(why.contains("no Service with the label k8s-app=kube-dns"), "{why}");
    assert_eq!(code, Some(2), "{why}");

    tools.apply(OBJECTS).ok();
    let (dns, report, code) = import(&[]);
    assert_eq!(code, Some(0), "{report}");
    let (read, _) = crds::manifest::read(&dns, "imported").expect(&dns);
    crds::check_resource(&read).expect("what is imported passes check");
    let spec = serde_json::to_value(&read.spec).expect("a spec");
    assert_eq!(spec["domain"], "cluster.example", "{dns}");
    assert_eq!(spec["service"]["name"], "coredns", "{dns}");
    assert_eq!(spec["service"]["adopt"], true, "{dns}");
    assert_eq!(spec["upstreams"]["servers"][0]["address"], "10.0.0.2", "{dns}");
    assert_eq!(spec["stubDomains"][0]["domain"], "corp.example", "{dns}");
    assert_eq!(spec["stubDomains"][1]["domain"], "lab.example", "{dns}");
    assert_eq!(spec["records"][0]["target"], "new.corp.example", "{dns}");
    assert!(!dns.contains("192.0.2.66") && !report.contains("leftover"), "{dns}{report}");
    assert!(
        report.contains("configmap/kube-system/coredns-custom[a.override]:1: changed"),
        "{report}"
    );
    assert!(!report.contains("--colour"), "a workload that is not behind the Service: {report}");

    let (dns, report, _) = import(&["--name", "trial", "--service", "dns-trial"]);
    assert!(dns.contains("name: dns-trial") && !dns.contains("adopt"), "{dns}{report}");

    tools.apply(KUBE_DNS).ok();
    let (dns, report, code) = import(&["--service", "gke/kube-dns"]);
    assert_eq!(code, Some(0), "{report}");
    let (read, _) = crds::manifest::read(&dns, "imported").expect(&dns);
    let spec = serde_json::to_value(&read.spec).expect("a spec");
    assert_eq!(
        (&spec["domain"], &spec["cache"]["entries"]),
        (&"gke.example".into(), &700.into()),
        "{dns}"
    );
    assert_eq!(spec["stubDomains"][0]["domain"], "lab.example", "{dns}");
    assert_eq!(spec["upstreams"]["servers"][0]["address"], "10.0.0.9", "{dns}");
    assert_eq!(spec["metrics"]["compatibility"][1], "KubeDNS", "{dns}{report}");

    // The proxy is only for the imports: kubectl and the controllers do not use it.
    assert!(proxy.count(&Requests::all()) > 4, "the imports go through the proxy");
    assert_eq!(proxy.seen(&Requests::all().writes()), Vec::<Seen>::new(), "it only reads");

    plane.stop_api_server();
    let (_, why, code) = import(&[]);
    assert!(why.contains("the cluster (--from-cluster): its Services cannot be read"), "{why}");
    assert_eq!(code, Some(2), "{why}");
}

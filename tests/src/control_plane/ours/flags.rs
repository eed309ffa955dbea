//! The flags of each program of a control plane. Everything that a program writes is in its working directory.

use std::net::SocketAddr;

use crate::control_plane::Setup;

/// Go reads the host and port of a unix URL as a file name: sockets in the scratch directory, so no ports to find.
const ETCD_CLIENTS: &str = "unix://etcd:0";
const ETCD_PEERS: &str = "unix://peers:0";
pub(super) const ETCD_DATA: &str = "etcd.data";
pub(super) const SCHEDULER: [&str; 3] =
    ["--kubeconfig=scheduler.kubeconfig", "--leader-elect=false", "--secure-port=0"];

pub(super) fn etcd() -> Vec<String> {
    [
        "--name=test".into(),
        format!("--data-dir={ETCD_DATA}"),
        format!("--listen-client-urls={ETCD_CLIENTS}"),
        format!("--advertise-client-urls={ETCD_CLIENTS}"),
        format!("--listen-peer-urls={ETCD_PEERS}"),
        format!("--initial-advertise-peer-urls={ETCD_PEERS}"),
        format!("--initial-cluster=test={ETCD_PEERS}"),
        // The data lives as long as the test: none of it must survive a power cut.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ]
    .into()
}

pub(super) fn api_server(address: SocketAddr, setup: &Setup) -> Vec<String> {
    let mut flags: Vec<String> = [
        format!("--etcd-servers={ETCD_CLIENTS}"),
        format!("--bind-address={}", setup.listen),
        format!("--advertise-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        "--permit-port-sharing".into(),
        // The Service `kubernetes` would get an EndpointSlice, which may not hold a loopback address.
        "--endpoint-reconciler-type=none".into(),
        "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112".into(),
        "--authorization-mode=Node,RBAC".into(),
        "--token-auth-file=tokens.csv".into(),
        "--tls-cert-file=server.pem".into(),
        "--tls-private-key-file=server.key".into(),
        "--cert-dir=api-server.certs".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--service-account-key-file=accounts.pub".into(),
        "--service-account-signing-key-file=accounts.key".into(),
        "--profiling=false".into(),
    ]
    .into();
    flags.extend(setup.api_server_flags.iter().cloned());
    flags
}

pub(super) fn controller_manager(real_nodes: bool) -> Vec<String> {
    let mut flags: Vec<String> = [
        "--kubeconfig=controller-manager.kubeconfig",
        "--leader-elect=false",
        // No port: no test asks it anything.
        "--secure-port=0",
        // Each controller gets the rights it has in a real cluster; the program's own user has few.
        "--use-service-account-credentials=true",
        "--root-ca-file=ca.pem",
        "--service-account-private-key-file=accounts.key",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]
    .map(String::from)
    .into();
    if !real_nodes {
        // Nodes are objects only. These would notice that no kubelet renews them and take their pods away.
        let some = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller";
        flags.push(some.into());
    }
    flags
}

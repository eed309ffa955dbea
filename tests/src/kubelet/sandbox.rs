//! The network of one Pod: a namespace with an address, which stays the same over restarts of the container, and a
//! route to every other Pod, to the test and to the API server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;

use crate::netns::{NODE_ADDRESS, ip};

/// Pods of one test process; addresses are never used twice.
static PODS: AtomicU16 = AtomicU16::new(1);
/// Below it are the namespaces that `ip netns` names.
const NAMESPACES: &str = "/run/netns";

/// Addresses, and a namespace where a process runs in it. Gone when dropped.
#[derive(Debug)]
pub(super) struct Sandbox {
    number: u16,
    addresses: Vec<IpAddr>,
    has_namespace: bool,
}

impl Sandbox {
    /// For a Pod without a process: its addresses are the test's own, so that the test may answer there, and other
    /// questions are refused at once instead of waiting.
    pub(super) fn of_nothing(dual_stack: bool) -> Sandbox {
        let (number, addresses) = next(dual_stack);
        for address in &addresses {
            crate::netns::add_address(*address);
        }
        Sandbox { number, addresses, has_namespace: false }
    }

    pub(super) fn of(pod: &Pod, dual_stack: bool) -> Result<Sandbox> {
        let (number, addresses) = next(dual_stack);
        let sandbox = Sandbox { number, addresses, has_namespace: true };
        sandbox.connect()?;
        let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        for sysctl in context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten() {
            sandbox.set(&sysctl.name, &sysctl.value)?;
        }
        Ok(sandbox)
    }

    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    pub(super) fn namespace(&self) -> PathBuf {
        PathBuf::from(NAMESPACES).join(self.name())
    }

    fn name(&self) -> String {
        format!("pod{}", self.number)
    }

    /// A cable between both namespaces. No bridge: each side has routes to single addresses.
    fn connect(&self) -> Result<()> {
        let (name, cable) = (self.name(), format!("veth{}", self.number));
        let run = |line: String| ip(&line.split_whitespace().collect::<Vec<_>>());
        run(format!("netns add {name}"))?;
        run(format!("link add {cable} type veth peer name eth0 netns {name}"))?;
        run(format!("link set {cable} up"))?;
        run(format!("-n {name} link set lo up"))?;
        run(format!("-n {name} link set eth0 up"))?;
        for address in &self.addresses {
            match address {
                IpAddr::V4(address) => {
                    run(format!("route add {address}/32 dev {cable}"))?;
                    run(format!("-n {name} address add {address}/32 dev eth0"))?;
                    run(format!("-n {name} route add {NODE_ADDRESS}/32 dev eth0"))?;
                    run(format!("-n {name} route add default via {NODE_ADDRESS}"))?;
                }
                IpAddr::V6(address) => {
                    run(format!("-6 address add fe80::1/64 dev {cable} nodad"))?;
                    run(format!("-6 route add {address}/128 dev {cable}"))?;
                    run(format!("-n {name} -6 address add {address}/128 dev eth0 nodad"))?;
                    run(format!("-n {name} -6 route add default via fe80::1 dev eth0"))?;
                }
            }
        }
        Ok(())
    }

    fn set(&self, sysctl: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{}", sysctl.replace('.', "/"));
        let status = Command::new("nsenter")
            .arg(format!("--net={}", self.namespace().display()))
            .args(["sh", "-c", "echo \"$1\" >\"$2\"", "sh", value, &path])
            .status()?;
        anyhow::ensure!(status.success(), "sysctl {sysctl}={value} is refused");
        Ok(())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The rest ends with the namespace of the test.
        if self.has_namespace {
            let _ = ip(&["netns", "delete", &self.name()]);
        } else {
            for address in &self.addresses {
                let length = if address.is_ipv4() { 32 } else { 128 };
                let _ = ip(&["address", "del", &format!("{address}/{length}"), "dev", "lo"]);
            }
        }
    }
}

fn next(dual_stack: bool) -> (u16, Vec<IpAddr>) {
    let number = PODS.fetch_add(1, Ordering::Relaxed);
    let [high, low] = number.to_be_bytes();
    let mut addresses: Vec<IpAddr> = vec![Ipv4Addr::new(10, 244, high, low).into()];
    if dual_stack {
        addresses.push(Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, number).into());
    }
    (number, addresses)
}

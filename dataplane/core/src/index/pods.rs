//! Pods, for verified pod records (RR54) and the ownership of PTRs (RR63).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::held::HeldPod;
use super::{Applied, Index, is_label};
use crate::object::{Key, Pod, Problem, Resource};
use crate::records::PodHolder;
use crate::wire::address::Address;

impl Index {
    pub(super) fn apply_pod(&mut self, pod: Pod) -> Applied {
        if !is_label(&pod.key.namespace) {
            return Applied::refused(Problem::NotALabel(pod.key.namespace));
        }
        let Some(held) = self.stamp(Resource::Pods, &pod.key, pod.uid, pod.version) else {
            return Applied::default();
        };
        let mut addresses: Vec<Address> = match pod.finished {
            true => Vec::new(),
            false => pod.addresses.iter().map(|&address| address.into()).collect(),
        };
        addresses.sort_unstable();
        addresses.dedup();
        let addresses: Box<[Address]> = addresses.into();
        let (host_network, key) = (pod.host_network, pod.key);
        if let Some(old) = self.held.pods.get_mut(&key)
            && old.addresses == addresses
            && old.host_network == host_network
        {
            old.held = held;
            return Applied::default();
        }
        let had_addresses = self.delete_pod(&key);
        let namespace = self.namespace_slot(&key.namespace);
        self.change_namespace(namespace, |entry| entry.users += 1);
        let slot = self.free_pods.take();
        for &address in &addresses {
            let holder = PodHolder { namespace, host_network, pod: slot };
            self.waiting_pods.insert(&mut self.next.pod_addresses, address, holder);
        }
        let visible = had_addresses || !addresses.is_empty();
        self.held.pods.insert(key, HeldPod { held, slot, namespace, addresses, host_network });
        Applied { visible, problems: Vec::new() }
    }

    pub(super) fn delete_pod(&mut self, key: &Key) -> bool {
        let Some(gone) = self.held.pods.remove(key) else {
            return false;
        };
        let holder = PodHolder {
            namespace: gone.namespace,
            host_network: gone.host_network,
            pod: gone.slot,
        };
        for &address in &gone.addresses {
            self.waiting_pods.remove(&mut self.next.pod_addresses, address, holder);
        }
        self.free_pods.give_back(gone.slot);
        self.change_namespace(gone.namespace, |entry| entry.users -= 1);
        self.free_namespace_if_unused(gone.namespace);
        !gone.addresses.is_empty()
    }
}

//! What is visible: namespaces and Services under the exposure settings (§4.5).

use dataplane_core::{
    Key, Namespace, Object, Resource, Selector, SelectorOperator, Service, ServiceKind,
};

use super::Oracle;
use super::names::{Name, is_label};

type Labels = [(Box<str>, Box<str>)];

/// Label selectors as Kubernetes defines them.
fn selects(selector: &Selector, labels: &Labels) -> bool {
    selector.0.iter().all(|requirement| {
        let value = labels.iter().find(|(key, _)| *key == requirement.key).map(|(_, value)| value);
        match &requirement.operator {
            SelectorOperator::In(values) => value.is_some_and(|value| values.contains(value)),
            SelectorOperator::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
        }
    })
}

impl Oracle {
    /// All Services of the store, visible or not.
    pub(super) fn services(&self) -> impl Iterator<Item = &Service> {
        self.store.objects.iter().filter_map(|object| match object {
            Object::Service(service) => Some(service),
            _ => None,
        })
    }

    fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.store.objects.iter().find_map(|object| match object {
            Object::Namespace(namespace) if &*namespace.name == name => Some(namespace),
            _ => None,
        })
    }

    /// Whether namespaces are selected by label, so that the Namespace objects decide.
    pub(super) fn selects_namespaces(&self) -> bool {
        !self.settings.exposure.namespace_selector.0.is_empty()
    }

    /// What every answer about Services needs besides the Services (§4.4, note 1).
    pub(super) fn needs_of_services(&self) -> Vec<Resource> {
        if self.selects_namespaces() {
            vec![Resource::Services, Resource::Namespaces]
        } else {
            vec![Resource::Services]
        }
    }

    /// N40; without a selector a Service is enough to know its namespace (§4.4).
    pub(super) fn namespace_is_visible(&self, name: &str) -> bool {
        let exposure = &self.settings.exposure;
        let listed = exposure.namespaces.is_empty()
            || exposure.namespaces.iter().any(|listed| &**listed == name);
        let object = self.namespace(name);
        let known = if self.selects_namespaces() {
            object.is_some_and(|object| selects(&exposure.namespace_selector, &object.labels))
        } else {
            object.is_some() || self.services().any(|service| &*service.key.namespace == name)
        };
        is_label(name) && listed && known
    }

    /// Services with names that DNS can have, visible or not.
    pub(super) fn known_services(&self) -> impl Iterator<Item = &Service> {
        let is_known = |key: &Key| is_label(&key.name) && is_label(&key.namespace);
        self.services().filter(move |service| is_known(&service.key))
    }

    /// Services that exist in DNS, whether or not they have anything to show.
    pub(super) fn visible_services(&self) -> impl Iterator<Item = &Service> {
        self.services().filter(|service| {
            is_label(&service.key.name)
                && self.namespace_is_visible(&service.key.namespace)
                && selects(&self.settings.exposure.service_selector, &service.labels)
                && match &service.kind {
                    ServiceKind::ExternalName(target) => external_name(target).is_some(),
                    ServiceKind::ClusterIp(_) | ServiceKind::Headless => true,
                }
        })
    }
}

/// RR47: the target of an ExternalName Service, if it is a domain name and no address.
pub(super) fn external_name(text: &str) -> Option<Name> {
    let bare = text.strip_suffix('.').unwrap_or(text);
    let good = !bare.is_empty()
        && bare.parse::<std::net::IpAddr>().is_err()
        && bare.split('.').all(|label| (1..=63).contains(&label.len()));
    let name = Name::text(bare);
    (good && name.fits()).then_some(name)
}

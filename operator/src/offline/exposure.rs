//! What is hidden, and is needed by many.

use crds::ClusterDNS;
use crds::config::RecordType;
use crds::v1alpha1::Record;

use super::warning::{Warning, warning};

/// A warning where the API server has no name. What selectors hide is known in a cluster only.
pub(super) fn api_server(dns: &ClusterDNS) -> Option<Warning> {
    let namespaces = dns.spec.exposure.as_ref()?.namespaces.as_ref()?;
    let is_hidden = !namespaces.is_empty() && !namespaces.iter().any(|name| name == "default");
    let name = format!("kubernetes.default.svc.{}", dns.spec.domain);
    let of_hosts = dns.spec.hosts.iter().flatten().map(|host| &host.name);
    let of_records = dns.spec.records.iter().flatten();
    // A TXT record alone gives no address.
    let leads = |it: &&Record| {
        matches!(it.record_type, RecordType::A | RecordType::Aaaa | RecordType::Cname)
    };
    let of_records = of_records.filter(leads).map(|record| &record.name);
    let is_written = of_hosts.chain(of_records).any(|it| *it == name);
    (is_hidden && !is_written).then(|| {
        let message = format!(
            "{name} does not exist without the namespace default: programs in pods that find the API server by its name need \
             it; add default, unless the pods of these namespaces do not"
        );
        warning("spec.exposure.namespaces", "HidesAPIServer", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::dns;

    #[test]
    fn o18_namespaces_without_default_hide_the_name_of_the_api_server() {
        let host = "hosts: [{name: kubernetes.default.svc.cluster.local, addresses: [10.96.0.1], \
                    overrideClusterZone: true}]";
        let written = format!("{{{host}, exposure: {{namespaces: [shop]}}}}");
        let text = "records: [{name: kubernetes.default.svc.cluster.local, type: TXT, strings: [x], overrideClusterZone: true}]";
        let text = format!("{{{text}, exposure: {{namespaces: [shop]}}}}");
        for (spec, expected) in [
            ("{}", false),
            ("{exposure: {}}", false),
            ("{exposure: {namespaces: []}}", false),
            ("{exposure: {namespaces: [default, shop]}}", false),
            (&*written, false),
            (&*text, true),
            ("{exposure: {namespaces: [shop]}}", true),
        ] {
            let warned = api_server(&dns(spec));
            assert_eq!(warned.is_some(), expected, "{spec}: {warned:?}");
        }
    }
}

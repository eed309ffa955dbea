//! A federation of kube-dns or of CoreDNS' plugin `federation`.

use crds::v1alpha1::Federation;

use super::draft::Draft;
use super::report::Outcome::{self, Changed, Kept, NotPossible};
use super::values;

/// Adds it, and says what became of it.
pub(super) fn add(name: &str, domain: &str, draft: &mut Draft) -> (Outcome, String) {
    let federation = Federation {
        name: name.to_owned(),
        domain: values::name(domain),
        zone: None,
        region: None,
    };
    let known = draft.spec.federations.iter().flatten().find(|it| it.name == name);
    match known {
        Some(known) if known.domain == federation.domain => {
            return (Kept, format!("spec.federations: {name}"));
        }
        Some(known) => {
            let why = format!("{name} is there already and leads to {}", known.domain);
            return (NotPossible, why);
        }
        None => {}
    }
    let change = |spec: &mut crds::ClusterDNSSpec| {
        spec.federations.get_or_insert_default().push(federation.clone());
    };
    match draft.change(change) {
        Ok(()) => (
            Changed,
            format!(
                "spec.federations: {name}; zone and region are those of the labels topology.kubernetes.io/zone and region \
                 of the pod, which Kubernetes 1.35 and later sets: write zone and region for an older one"
            ),
        ),
        Err(why) => (NotPossible, why),
    }
}

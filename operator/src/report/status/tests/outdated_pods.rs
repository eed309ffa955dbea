//! Pods that refuse their configuration, or were given none.

use super::*;
#[test]
fn o4_pods_without_a_document_refuse_nothing_while_the_operator_writes_it_again() {
    for (spec, reason) in [("{}", "AsExpected"), ("{managementState: Unmanaged}", "PodsRefuse")] {
        let mut story = Story::settled(spec);
        for name in ["dns-0", "dns-1"] {
            let said = reported(&mut story.observed, name);
            said.rejection = Some("there is no ConfigMap".to_owned());
            said.has_no_document = true;
        }
        let status = story.reconcile(10);
        assert_eq!(condition(&status, "Degraded").unwrap().reason, reason, "{spec}");
    }
    let mut story = Story::settled("{}");
    reported(&mut story.observed, "dns-0").rejection = Some("there is none".to_owned());
    reported(&mut story.observed, "dns-0").has_no_document = true;
    let status = story.reconcile(10);
    assert_eq!(condition(&status, "UpToDate").unwrap().reason, "AllPodsCurrent", "it runs it");
}

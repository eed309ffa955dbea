//! An adopted Service that another client makes lead to pods of a client's own node only.

use super::*;
use crate::names::{ADOPTED_BY, INSTANCE};

#[test]
fn o15_an_adopted_service_that_leaves_nodes_without_dns_is_degraded() {
    let mut story = Story::new("{service: {adopt: true}}");
    let mut switched = kube_dns();
    let spec = switched.spec.as_mut().unwrap();
    spec.selector.as_mut().unwrap().insert(INSTANCE.to_owned(), "default".to_owned());
    switched.metadata.annotations = Some([(ADOPTED_BY.to_owned(), "default".to_owned())].into());
    story.observed.service = Some(switched.clone());
    deploy(&mut story.observed, 2);
    story.reconcile(0);
    story.pods_follow();
    expose(&mut story.observed);
    for (policy, degraded, kstatus) in [
        (None, "False=AsExpected", Kstatus::Current),
        (Some("Local"), "True=ServiceTrafficLocal", Kstatus::Failed),
        (Some("Cluster"), "False=AsExpected", Kstatus::Current),
    ] {
        let service = story.observed.service.as_mut().unwrap();
        service.spec.as_mut().unwrap().internal_traffic_policy = policy.map(str::to_owned);
        let status = story.reconcile(10);
        is(&story, &format!("True=Valid True=Serving False=Complete {degraded}"), kstatus);
        let message = &condition(&status, "Degraded").unwrap().message;
        let has_command = message.contains("kubectl -n kube-system patch service kube-dns -p");
        assert_eq!(has_command, policy == Some("Local"), "{message}");
    }
}

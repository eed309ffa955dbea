//! What the operator itself lacks.

use super::*;
use crate::observe::unlisted::{Cause, Unlisted};

#[test]
fn o4_a_watch_that_is_refused_is_degraded_until_the_right_is_back() {
    let mut story = Story::settled("{}");
    let why = "deployments.apps is forbidden".to_owned();
    let kind = "deployments".to_owned();
    story.observed.refused_watches = Some(Unlisted { cause: Cause::Refused, kind, others: 6, why });
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=WatchRefused", Kstatus::Failed);
    let message = &condition(&status, "Degraded").unwrap().message;
    for words in [
        "watch deployments and 6 more kinds",
        "deployments.apps is forbidden",
        "Role in namespace kube-system",
    ] {
        assert!(message.contains(words), "{words}: {message}");
    }
    // Also beside a spec that is refused.
    let ttl_seconds = std::mem::replace(&mut story.dns.spec.ttl_seconds, 5_000);
    let status = story.reconcile(11);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("deployments.apps is forbidden"), "{message}");
    story.dns.spec.ttl_seconds = ttl_seconds;
    story.observed.refused_watches = None;
    story.reconcile(12);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
}

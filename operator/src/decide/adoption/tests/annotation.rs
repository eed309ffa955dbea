//! An adopted Service from which another client takes only the annotation.

use super::*;

#[test]
fn o15_an_annotation_that_another_client_takes_away_is_added_ever_more_seldom() {
    let mut story = Story { observed: with(kube_dns()) };
    assert_eq!(story.reconcile(0), patched(true));
    let mut stripped = switched();
    stripped.metadata.annotations = None;
    let (mut version, mut now) = (200, 10);
    for wait in [60, 120, 240] {
        story.becomes(switched(), &(version - 1).to_string());
        assert_eq!(story.reconcile(now - 1), None);
        story.becomes(stripped.clone(), &version.to_string());
        for second in [now, now + 1, now + wait - 1] {
            assert_eq!(story.reconcile(second), None, "not fought");
            assert_eq!(story.reset_by(second), None, "the key is there");
        }
        let patch = story.reconcile(now + wait).expect("added again");
        assert!(patch.add && patch.resource_version == version.to_string());
        (version, now) = (version + 2, now + wait + 10);
    }
}

#[test]
fn o15_a_key_that_was_there_without_the_annotation_gets_it_at_once() {
    let mut unnamed = switched();
    unnamed.metadata.annotations = None;
    let mut story = Story { observed: with(unnamed) };
    assert_eq!(story.reconcile(0), patched(true));
}

//! What a draft does not take.

use super::*;

#[test]
fn what_tries_too_many_names_is_refused_as_a_whole() {
    let service = ("kube-system".to_owned(), "kube-dns".to_owned());
    let (name, replaced) = ("default".to_owned(), Vec::new());
    let target = Target { name, service, adopt: false, domain: None, replaced };
    let mut draft = Draft::new(None, &target);
    let mut host = |name: &str| draft.host(name, [10, 0, 0, 1].into(), None, false);
    assert_eq!(host("a.example"), Ok(None));
    draft.spend(MAX_TRIES);
    assert!(draft.is_spent());
    let mut host = |name: &str| draft.host(name, [10, 0, 0, 1].into(), None, false);
    assert_eq!(host("b.example"), Err(SPENT.to_owned()));
    let refused = draft.finished().unwrap_err().to_string();
    assert!(refused.contains("more than 1000000 names: name fewer files"), "{refused}");
}

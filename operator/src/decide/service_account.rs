//! The ServiceAccount of the pods. One that was deleted and made again has another uid: the API server refuses the tokens of the
//! old one, and a kubelet gives them to its pods for up to 48 minutes more. New pods get new tokens. Pure.

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::ResourceExt;

use crate::decide::config_map;
use crate::decide::plan::Account;
use crate::desired::Kind;
use crate::names::{self, SERVICE_ACCOUNT};
use crate::observe::observed::{Child, Observed};

/// The ServiceAccount to remember: part of rollout.json. Nothing is written into pods while it is the one that was seen first, so
/// that neither a first install nor an upgrade replaces pods.
pub fn seen(dns: &ClusterDNS, observed: &Observed) -> Account {
    let before = config_map::state(observed).account;
    let (namespace, name) = (names::service(dns).0, names::child(&dns.name_any()));
    let is_its = |it: &&Child| {
        it.kind == Kind::ServiceAccount && it.namespace == namespace && it.name == name
    };
    let found = observed.children.iter().find(is_its);
    // Where the state was lost, pods must keep what they have: without it they would be replaced.
    let before = match written(observed) {
        Some(uid) if before.uid.is_empty() => Account { uid, is_replaced: true },
        Some(_) => Account { is_replaced: true, ..before },
        None => before,
    };
    // While it is missing, nothing is known of the next one.
    let Some(uid) = found.map(|it| it.uid.clone()).filter(|uid| !uid.is_empty()) else {
        return before;
    };
    let is_another = !before.uid.is_empty() && before.uid != uid;
    Account { uid, is_replaced: before.is_replaced || is_another }
}

/// The uid that pods get already, if they get one.
fn written(observed: &Observed) -> Option<String> {
    let of_deployment = observed.deployment.as_ref().and_then(|it| it.spec.as_ref());
    let of_daemon_set = observed.daemon_set.as_ref().and_then(|it| it.spec.as_ref());
    let templates = of_deployment.map(|it| &it.template).into_iter();
    templates.chain(of_daemon_set.map(|it| &it.template)).find_map(uid_in)
}

fn uid_in(template: &PodTemplateSpec) -> Option<String> {
    let annotations = template.metadata.as_ref().and_then(|it| it.annotations.as_ref());
    annotations.and_then(|all| all.get(SERVICE_ACCOUNT)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deploy, dns, write};

    fn is_there(observed: &mut Observed, uid: Option<&str>) {
        let child = |uid: &str| Child {
            kind: Kind::ServiceAccount,
            namespace: "kube-system".to_owned(),
            name: "clusterdns-default".to_owned(),
            uid: uid.to_owned(),
        };
        observed.children = uid.map(child).into_iter().collect();
    }

    #[test]
    fn o4_pods_get_the_uid_of_their_serviceaccount_only_once_it_is_another_one() {
        let dns = dns("{}");
        let mut observed = Observed::default();
        deploy(&mut observed, 2);
        let mut looks = Vec::new();
        // A first install, an operator that sees it first, the same again; deleted; made again; deleted again.
        for uid in [None, Some("a"), Some("a"), None, Some("b"), Some("b"), None, Some("c")] {
            is_there(&mut observed, uid);
            let config = crate::fixtures::config(&dns);
            let plan =
                crate::decide::rollout::plan(&dns, &config, &observed, crate::fixtures::at(0));
            write(&mut observed, &plan);
            let Account { uid, is_replaced } = plan.state.account;
            looks.push(format!("{uid}{}", if is_replaced { " replaced" } else { "" }));
        }
        let expected = ["", "a", "a", "a", "b replaced", "b replaced", "b replaced", "c replaced"];
        assert_eq!(looks, expected);
    }

    #[test]
    fn o4_pods_that_have_the_uid_keep_it_where_the_state_was_lost() {
        let dns = dns("{}");
        let mut observed = Observed::default();
        deploy(&mut observed, 2);
        is_there(&mut observed, Some("b"));
        assert!(!seen(&dns, &observed).is_replaced);
        let spec = observed.deployment.as_mut().unwrap().spec.as_mut().unwrap();
        let metadata = spec.template.metadata.get_or_insert_default();
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(SERVICE_ACCOUNT.to_owned(), "b".to_owned());
        // With `--cascade=orphan` it has no owner for a moment; and it may be gone as well as the state.
        for there in [Some("b"), None] {
            is_there(&mut observed, there);
            let expected = Account { uid: "b".to_owned(), is_replaced: true };
            assert_eq!(seen(&dns, &observed), expected, "{there:?}");
        }
    }
}

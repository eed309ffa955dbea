//! One object, as a watch keeps it or as the API server has it. If the watch may lag behind our own write, the object is read again.

use std::sync::Arc;

use anyhow::Context as _;
use crds::ClusterDNS;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::is_owned;
use super::stubs::is_stub;
use crate::context::Context;
use crate::desired::Kind;
use crate::names;
use crate::runtime::resources;
use crate::runtime::time_limit::within;
use crate::shortened::shortened;

/// Octets of why a read is refused: an authorizer of others may say anything.
const MAX_WHY: usize = 300;

/// Why a read of [`observe`](super::observe) is refused; none: it failed otherwise. All that it reads, a right in the namespace of the
/// ClusterDNS allows, so the next one is refused too.
pub fn refusal(error: &anyhow::Error) -> Option<String> {
    let refused = error.chain().find_map(|cause| match cause.downcast_ref()? {
        kube::Error::Api(status) if [401, 403].contains(&status.code) => Some(status),
        _ => None,
    })?;
    Some(shortened(&format!("{error}: {}", refused.message), MAX_WHY))
}

/// An object as a watch keeps it; where that is a stub, or nothing is kept of some objects, as the API server has it.
pub(super) async fn whole(
    ctx: &Context,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Option<Arc<DynamicObject>>> {
    let kept = ctx.caches.object(kind, namespace, name);
    if is_known(kept.as_deref(), ctx.caches.is_incomplete(kind, namespace)) {
        return Ok(kept);
    }
    read(ctx, kind, namespace, name).await
}

/// One of ours, which watches show by its label. Another client may have taken that away, and to decide as if there were no
/// workload would end most of its pods.
pub(super) async fn ours(
    ctx: &Context,
    dns: &ClusterDNS,
    kind: Kind,
    namespace: &str,
) -> anyhow::Result<Option<Arc<DynamicObject>>> {
    let name = names::child(&dns.name_any());
    let shown = whole(ctx, kind, namespace, &name).await?;
    if shown.is_some() || !ctx.memory.may_exist(kind, namespace, &name) {
        return Ok(shown);
    }
    let read = read(ctx, kind, namespace, &name).await?;
    Ok(read.filter(|it| is_owned(it.as_ref(), dns)))
}

async fn read(
    ctx: &Context,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Option<Arc<DynamicObject>>> {
    let objects = resources::api(&ctx.client, kind, namespace);
    let read = within(objects.get_opt(name)).await;
    let read =
        read.with_context(|| format!("cannot read {} {namespace}/{name}", resources::name(kind)));
    Ok(read?.map(Arc::new))
}

/// Does the cache show what the API server has? A stub does not. Where some objects are not kept at all, a missing
/// object may exist.
fn is_known(kept: Option<&DynamicObject>, is_incomplete: bool) -> bool {
    kept.map_or(!is_incomplete, |kept| !is_stub(kept))
}

/// It has the state of the rollout: a decision from a state that is older than our last write could begin a rollout
/// twice.
pub(super) async fn fresh_config_map(
    ctx: &Context,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Option<ConfigMap>> {
    let kept = ctx.caches.object(Kind::ConfigMap, namespace, name);
    let is_known = is_known(kept.as_deref(), ctx.caches.is_incomplete(Kind::ConfigMap, namespace));
    if is_known && !ctx.memory.is_behind(Kind::ConfigMap, namespace, name, kept.as_deref()) {
        return typed(kept);
    }
    typed(read(ctx, Kind::ConfigMap, namespace, name).await?)
}

pub(super) fn typed<K: Resource + DeserializeOwned>(
    object: Option<Arc<DynamicObject>>,
) -> anyhow::Result<Option<K>> {
    let Some(object) = object else { return Ok(None) };
    let name = object.name_any();
    let parsed = Arc::unwrap_or_clone(object).try_parse();
    parsed.map(Some).with_context(|| format!("{name} cannot be understood"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::from;
    use crate::observe::stubs;
    use serde_json::json;

    #[test]
    fn k23_what_a_full_cache_does_not_hold_is_read_before_it_counts_as_missing() {
        let object: DynamicObject = from(json!({"metadata": {"name": "clusterdns-default"}}));
        let mut stub = object.clone();
        stubs::stub_of_service(&mut stub);
        assert!(is_known(Some(&object), false) && is_known(Some(&object), true));
        assert!(!is_known(Some(&stub), false));
        assert!(is_known(None, false), "the watch has everything: it does not exist");
        assert!(!is_known(None, true), "it may have been refused");
    }

    #[test]
    fn k23_only_a_refusal_of_the_api_server_counts_as_one() {
        let said = |code: u16| {
            let status = json!({"status": "Failure", "message": "it is forbidden", "reason": "r",
                "code": code});
            let error = anyhow::Error::from(kube::Error::Api(from(status)));
            refusal(&error.context("cannot read Deployment dns/x"))
        };
        let refused = Some("cannot read Deployment dns/x: it is forbidden".to_owned());
        assert_eq!(
            [401, 403, 404, 429, 500].map(said),
            [refused.clone(), refused, None, None, None]
        );
        assert_eq!(refusal(&anyhow::anyhow!("no answer")), None);
    }
}

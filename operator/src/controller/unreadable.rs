//! A ClusterDNS that this version of the operator cannot read is not reconciled, and must not look as if all were well: its
//! status, an Event and the metrics say so. What no type holds in its status is taken out, so that it can be read again. Once for
//! each version of it.

use std::collections::BTreeMap;
use std::time::Duration;

use crds::ClusterDNS;
use hyper::Request;
use jiff::Timestamp;
use kube::Resource;
use serde_json::Value;

use crate::context::Context;
use crate::observe::unreadable::Seen;
use crate::report::status::unreadable as status;
use crate::report::{mend, report};
use crate::runtime::time_limit::within;

/// Between two passes; one that changes all the time costs one look in this time.
const EVERY: Duration = Duration::from_secs(1);
/// Of them, that one pass looks at.
const MOST_IN_A_PASS: usize = 10;

/// Says it of each, until dropped.
pub async fn follow(ctx: &Context) {
    let mut said: BTreeMap<String, Seen> = BTreeMap::new();
    loop {
        let all = ctx.caches.unreadable.all();
        said.retain(|name, _| all.contains_key(name));
        let is_due = |name: &String, seen: &Seen| {
            said.get(name) != Some(seen)
                && is_managed(ctx, name)
                && ctx.attempts.waits(&called(name), None).is_none()
        };
        let due: Vec<_> = all.into_iter().filter(|(name, seen)| is_due(name, seen)).collect();
        for (name, seen) in due.into_iter().take(MOST_IN_A_PASS) {
            match say(ctx, &name, &seen.why).await {
                Ok(()) => {
                    ctx.attempts.succeeded(&called(&name));
                    said.insert(name, seen);
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    tracing::warn!("cannot say that the ClusterDNS {name} cannot be read: {why}");
                    ctx.attempts.failed(&called(&name), None, (&why, None));
                }
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn called(name: &str) -> String {
    format!("the unreadable ClusterDNS {name}")
}

/// Another operator says it of the others. Which namespace it is in may be what cannot be read.
fn is_managed(ctx: &Context, name: &String) -> bool {
    let instances = &ctx.settings.instances;
    instances.is_empty() || instances.contains(name)
}

async fn say(ctx: &Context, name: &str, why: &str) -> anyhow::Result<()> {
    let path = format!("{}/{name}", ClusterDNS::url_path(&(), None));
    let request = Request::get(path).body(Vec::new())?;
    let object: Value = match within(ctx.client.request(request)).await {
        Ok(object) => object,
        Err(error) if is_gone(&error) => {
            ctx.caches.unreadable.forget(name);
            ctx.forget(name);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    // Its watch shows the version that follows.
    if let Some(patch) = status::mended(&object) {
        tracing::warn!(
            "the status of the ClusterDNS {name} cannot be read, so that part of it is removed: {why}"
        );
        return mend(ctx, name, &patch).await;
    }
    let Some(dns) = status::as_far_as_it_can_be_read(&object) else {
        anyhow::bail!("the API server shows no ClusterDNS");
    };
    let message = status::message(why);
    let reported = report(ctx, &dns, status::of(&dns, &message, Timestamp::now())).await;
    ctx.events.warn(&dns, status::REASON, &message).await;
    reported
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
}

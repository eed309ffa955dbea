//! Reads a ClusterDNS once more before the first write that follows from it. Each kind has a watch of its own, and one may be
//! behind: after etcd was restored from a backup, the ConfigMap of that time can be seen before the ClusterDNS of that time.
//! It would be overwritten by a spec that does not exist any more.

use std::fmt;
use std::time::Duration;

use crds::ClusterDNS;
use kube::ResourceExt;
use kube::api::Api;

use crate::context::Context;
use crate::runtime::lease::NotLeading;
use crate::runtime::time_limit::within_time;

/// Time for the one read.
const PATIENCE: Duration = Duration::from_secs(4);

/// Why nothing more is written.
#[derive(Debug)]
pub enum Stopped {
    NotLeading(NotLeading),
    /// The API server has another spec than the one that was decided on, or no such ClusterDNS.
    Outdated(Option<Box<ClusterDNS>>),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::NotLeading(lost) => write!(f, "{lost}"),
            Stopped::Outdated(_) => {
                f.write_str("the ClusterDNS has changed, and its watch has not shown it yet")
            }
        }
    }
}

impl std::error::Error for Stopped {}

impl From<NotLeading> for Stopped {
    fn from(lost: NotLeading) -> Stopped {
        Stopped::NotLeading(lost)
    }
}

/// The ClusterDNS that was decided on, and whether the API server was asked for it.
#[derive(Debug)]
pub struct Newest<'a> {
    ctx: &'a Context,
    dns: &'a ClusterDNS,
    is_known: bool,
}

impl<'a> Newest<'a> {
    /// `is_known`: it was read from the API server just now, and not shown by the watch.
    pub fn new(ctx: &'a Context, dns: &'a ClusterDNS, is_known: bool) -> Newest<'a> {
        Newest { ctx, dns, is_known }
    }

    pub fn dns(&self) -> &'a ClusterDNS {
        self.dns
    }

    /// Asks the API server before the first write. If it does not answer, what the watch has shown counts.
    ///
    /// # Errors
    /// It has something else.
    pub(super) async fn ensure(&mut self) -> Result<(), Stopped> {
        if self.is_known {
            return Ok(());
        }
        let name = self.dns.name_any();
        let resources = Api::<ClusterDNS>::all(self.ctx.client.clone());
        match within_time(PATIENCE, resources.get_opt(&name)).await {
            Ok(Some(found)) if is_same(&found, self.dns) => {}
            Ok(found) => return Err(Stopped::Outdated(found.map(Box::new))),
            Err(error) => tracing::debug!("the ClusterDNS {name} is not read again: {error:#}"),
        }
        self.is_known = true;
        Ok(())
    }
}

/// Whether the same would be decided. The generation counts too: with another one the spec was another in between.
fn is_same(found: &ClusterDNS, decided: &ClusterDNS) -> bool {
    let of = |dns: &ClusterDNS| {
        let metadata = &dns.metadata;
        (metadata.uid.clone(), metadata.generation, metadata.deletion_timestamp.is_some())
    };
    of(found) == of(decided) && found.spec == decided.spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k22_another_spec_generation_or_uid_is_another_resource() {
        let dns = |text: &str| -> ClusterDNS {
            let metadata = r#""name": "a", "uid": "1", "generation": 3"#;
            let text = format!(r#"{{"metadata": {{{metadata}}}, {text}}}"#);
            serde_json::from_str(&text).expect("a ClusterDNS")
        };
        let decided = dns(r#""spec": {"domain": "cluster.local"}"#);
        let mut found = decided.clone();
        found.metadata.resource_version = Some("9".to_owned());
        assert!(is_same(&found, &decided), "a status was written");
        assert!(!is_same(&dns(r#""spec": {"domain": "other.local"}"#), &decided));
        found.metadata.generation = Some(4);
        assert!(!is_same(&found, &decided));
        found.metadata.generation = Some(3);
        found.metadata.uid = Some("2".to_owned());
        assert!(!is_same(&found, &decided));
    }
}

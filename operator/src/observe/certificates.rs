//! Whether the Secrets that listeners name may be mounted: their names, type and labels. Their content is never asked for:
//! only metadata is listed, one Secret at a time, and the type is a selector.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::names::CERTIFICATE;
use crate::observe::observed::Certificate;
use crate::runtime::refusals::{Refusals, is_refusal};
use crate::runtime::time_limit::within;

/// The type of Secrets with a certificate and its key.
const TLS: &str = "kubernetes.io/tls";
/// Secrets whose last state is remembered.
const MAX_REMEMBERED: usize = 2_000;
/// How long a Secret that may be mounted is not looked at again: a ClusterDNS may be woken each second. Any other state is looked
/// at each time, because a person may correct it now.
const USABLE_FOR: Duration = Duration::from_secs(5);
/// Octets of the text that says why a Secret could not be read.
const MAX_REASON: usize = 200;

/// The last known state of each Secret: it stays in use while the API server fails for that Secret.
#[derive(Debug, Default)]
pub struct Certificates {
    known: Mutex<HashMap<(String, String), Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    certificate: Certificate,
    /// When it was seen so; none: only what pods have mounted says it.
    seen: Option<Instant>,
    /// How often the API server has refused since then to say what it is now.
    refusals: Refusals,
}

/// The state of the Secrets that listeners name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Certificates by name of the Secret.
    pub found: BTreeMap<String, Certificate>,
    /// Those that could not be read, and why: the result before counts.
    pub unread: BTreeMap<String, String>,
}

impl Certificates {
    /// The state of each of these Secrets; `named` are those that the administrator allows without the label, and
    /// `mounted` those that pods have now, which were checked before they were mounted.
    pub async fn read(
        &self,
        client: &Client,
        namespace: &str,
        wanted: BTreeSet<&str>,
        named: &[String],
        mounted: &BTreeSet<String>,
    ) -> Read {
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        let mut read = Read::default();
        for name in wanted {
            let now = Instant::now();
            if self.is_usable(namespace, name, now) {
                read.found.insert(name.to_owned(), Certificate::Usable);
                continue;
            }
            let is_named = named.iter().any(|one| one == name);
            let seen = look(&secrets, name, is_named).await;
            self.add(&mut read, (namespace, name), seen, mounted.contains(name), now);
        }
        read
    }

    /// Was it a moment ago?
    fn is_usable(&self, namespace: &str, name: &str, now: Instant) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(namespace.to_owned(), name.to_owned())).is_some_and(|known| {
            known.certificate == Certificate::Usable
                && known.seen.is_some_and(|seen| now.saturating_duration_since(seen) < USABLE_FOR)
        })
    }

    fn add(
        &self,
        read: &mut Read,
        (namespace, name): (&str, &str),
        seen: anyhow::Result<Certificate>,
        is_mounted: bool,
        now: Instant,
    ) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        if all.len() >= MAX_REMEMBERED && !all.contains_key(&key) {
            all.clear();
        }
        let known = all.entry(key).or_default();
        if known.seen.is_none() && is_mounted {
            known.certificate = Certificate::Usable;
        }
        match known.settled(seen, now) {
            Ok(certificate) => {
                *known = Known { certificate, seen: Some(now), ..Known::default() };
            }
            Err(error) => {
                let why = crate::shortened::shortened(&format!("{error:#}"), MAX_REASON);
                read.unread.insert(name.to_owned(), why);
            }
        }
        let certificate = known.certificate;
        let certificate = match certificate {
            Certificate::Missing if is_mounted => Certificate::Gone,
            other => other,
        };
        read.found.insert(name.to_owned(), certificate);
    }
}

impl Default for Known {
    fn default() -> Self {
        Known { certificate: Certificate::Unread, seen: None, refusals: Refusals::default() }
    }
}

impl Known {
    /// What was seen. A refusal of a Secret that may be mounted counts as not read at first.
    fn settled(
        &mut self,
        seen: anyhow::Result<Certificate>,
        now: Instant,
    ) -> anyhow::Result<Certificate> {
        match seen {
            Ok(Certificate::NotReadable) if self.certificate == Certificate::Usable => {
                match self.refusals.add(now) {
                    true => Ok(Certificate::NotReadable),
                    false => Err(anyhow!("the API server refuses to list it")),
                }
            }
            Ok(other) => Ok(other),
            Err(error) => {
                self.refusals.end();
                Err(error)
            }
        }
    }
}

async fn look(secrets: &Api<Secret>, name: &str, is_named: bool) -> anyhow::Result<Certificate> {
    let of_type = labels(secrets, &format!("metadata.name={name},type={TLS}")).await?;
    let of_any = match &of_type {
        Listed::None => labels(secrets, &format!("metadata.name={name}")).await?,
        Listed::One(_) | Listed::Forbidden => Listed::None,
    };
    Ok(judge(&of_type, &of_any, is_named))
}

/// The result of a list of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Listed {
    None,
    One(BTreeMap<String, String>),
    Forbidden,
}

async fn labels(secrets: &Api<Secret>, fields: &str) -> anyhow::Result<Listed> {
    let params = ListParams::default().fields(fields).limit(1);
    match within(secrets.list_metadata(&params)).await {
        Ok(list) => Ok(list
            .items
            .into_iter()
            .next()
            .map_or(Listed::None, |secret| Listed::One(secret.labels().clone()))),
        Err(error) if is_refusal(&error) => Ok(Listed::Forbidden),
        Err(error) => Err(error),
    }
}

fn judge(of_type: &Listed, of_any: &Listed, is_named: bool) -> Certificate {
    match (of_type, of_any) {
        (Listed::Forbidden, _) | (_, Listed::Forbidden) => Certificate::NotReadable,
        (Listed::One(labels), _) => {
            let is_marked = labels.get(CERTIFICATE).is_some_and(|value| value == "true");
            if is_marked || is_named { Certificate::Usable } else { Certificate::NotMarked }
        }
        (Listed::None, Listed::One(_)) => Certificate::OtherType,
        (Listed::None, Listed::None) => Certificate::Missing,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    use serde_json::json;

    use super::*;
    use crate::fixtures::api::{self, Reply};

    #[tokio::test]
    async fn s14_a_usable_secret_is_looked_at_every_few_seconds_and_any_other_each_time() {
        let (is_marked, certificates) = (Arc::new(AtomicBool::new(false)), Certificates::default());
        let shown = is_marked.clone();
        let (client, log) = api::logged(move |_| {
            let labels = shown.load(Relaxed).then(|| json!({CERTIFICATE: "true"}));
            let metadata = json!({"name": "dns-tls", "namespace": "dns", "labels": labels});
            Reply::list([json!({"metadata": metadata})])
        });
        let read = async || {
            let (wanted, mounted) = (["dns-tls"].into(), BTreeSet::new());
            let read = certificates.read(&client, "dns", wanted, &[], &mounted).await;
            (read.found["dns-tls"], log.count())
        };
        assert_eq!(read().await, (Certificate::NotMarked, 1));
        is_marked.store(true, Relaxed);
        assert_eq!(read().await, (Certificate::Usable, 1), "a correction counts at once");
        assert_eq!(read().await, (Certificate::Usable, 0));
        let now = Instant::now();
        assert!(certificates.is_usable("dns", "dns-tls", now));
        assert!(!certificates.is_usable("dns", "dns-tls", now + USABLE_FOR));
        assert!(!certificates.is_usable("elsewhere", "dns-tls", now));
    }

    #[test]
    fn s14_a_secret_that_cannot_be_read_costs_its_own_listener_at_most() {
        let certificates = Certificates::default();
        let look = |name: &str, seen: anyhow::Result<Certificate>, is_mounted| {
            let mut read = Read::default();
            certificates.add(&mut read, ("dns", name), seen, is_mounted, Instant::now());
            (read.found[name], read.unread.get(name).cloned())
        };
        let fails = || Err(anyhow::anyhow!("etcd has no leader"));
        let why = Some("etcd has no leader".to_owned());
        assert_eq!(look("a", fails(), false), (Certificate::Unread, why.clone()));
        assert_eq!(look("a", fails(), true), (Certificate::Usable, why.clone()), "pods have it");
        assert_eq!(look("a", Ok(Certificate::NotMarked), true), (Certificate::NotMarked, None));
        assert_eq!(look("a", fails(), true), (Certificate::NotMarked, why.clone()), "as last seen");
        assert_eq!(look("a", Ok(Certificate::Usable), false), (Certificate::Usable, None));
        assert_eq!(look("a", fails(), false), (Certificate::Usable, why.clone()));
        assert_eq!(look("b", fails(), false), (Certificate::Unread, why.clone()), "another one");
        assert_eq!(look("b", Ok(Certificate::Missing), false), (Certificate::Missing, None));
        assert_eq!(look("b", Ok(Certificate::Missing), true), (Certificate::Gone, None));
        assert_eq!(look("b", fails(), true), (Certificate::Gone, why), "as last seen");
    }

    #[test]
    fn k11_a_usable_secret_is_refused_after_three_refusals_over_a_minute() {
        let (certificates, begin) = (Certificates::default(), Instant::now());
        let look = |name: &str, seen: anyhow::Result<Certificate>, is_mounted, at: u64| {
            let mut read = Read::default();
            let now = begin + Duration::from_secs(at);
            certificates.add(&mut read, ("dns", name), seen, is_mounted, now);
            (read.found[name], read.unread.get(name).is_some_and(|why| why.contains("refuses")))
        };
        let refused = || Ok(Certificate::NotReadable);
        let (kept, counts) = ((Certificate::Usable, true), (Certificate::NotReadable, false));
        assert_eq!(look("new", refused(), false, 0), counts, "it was never usable");
        for name in ["seen", "mounted"] {
            if name == "seen" {
                look(name, Ok(Certificate::Usable), false, 0);
            }
            let look = |seen, at| look(name, seen, name == "mounted", at);
            assert_eq!([look(refused(), 10), look(refused(), 40)], [kept, kept], "{name}");
            let fails = Err(anyhow::anyhow!("etcd has no leader"));
            assert_eq!(look(fails, 50), (Certificate::Usable, false), "another error: {name}");
            assert_eq!([look(refused(), 75), look(refused(), 105)], [kept, kept], "{name}");
            assert_eq!(look(refused(), 134), kept, "three, and less than a minute: {name}");
            assert_eq!(look(refused(), 135), counts, "{name}");
            assert_eq!(look(refused(), 140), counts, "it stays so: {name}");
            assert_eq!(look(Ok(Certificate::Usable), 150), (Certificate::Usable, false));
            assert_eq!(look(refused(), 160), kept, "{name}");
        }
    }

    #[test]
    fn s14_a_certificate_is_of_its_type_and_marked_or_named() {
        let labelled =
            |value: &str| Listed::One([(CERTIFICATE.to_owned(), value.to_owned())].into());
        let plain = Listed::One(BTreeMap::new());
        for (of_type, of_any, is_named, expected) in [
            (labelled("true"), Listed::None, false, Certificate::Usable),
            (labelled("false"), Listed::None, false, Certificate::NotMarked),
            (plain.clone(), Listed::None, false, Certificate::NotMarked),
            (plain.clone(), Listed::None, true, Certificate::Usable),
            (Listed::None, labelled("true"), true, Certificate::OtherType),
            (Listed::None, Listed::None, true, Certificate::Missing),
            (Listed::Forbidden, Listed::None, true, Certificate::NotReadable),
            (Listed::None, Listed::Forbidden, false, Certificate::NotReadable),
        ] {
            assert_eq!(judge(&of_type, &of_any, is_named), expected, "{of_type:?} {of_any:?}");
        }
    }
}

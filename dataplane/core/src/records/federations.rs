//! Federations of kube-dns, compiled (docs/dns.md §3.11). A name `<svc>.<ns>.<federation>.svc.Z` leads to the local
//! Service or to the domain of the federation: in both cases its end is replaced, as a DNAME would do it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::settings::Settings;
use crate::wire::dname::Dname;
use crate::wire::name::Name;

/// A label below `svc.Z`, and where its names lead.
#[derive(Debug)]
pub(crate) struct Federation {
    /// Its name, without length octet.
    label: Box<[u8]>,
    /// To `<svc>.<ns>.svc.Z` (RR96).
    pub(crate) here: Arc<Dname>,
    /// To `<svc>.<ns>.<federation>.svc.<zone>.<region>.<domain>` (RR97). `None` while zone or region is not known, or
    /// where no name could be below that.
    pub(crate) away: Option<Arc<Dname>>,
}

/// The federations of a configuration; few, so they are compared one by one.
#[derive(Debug, Default)]
pub(crate) struct Federations(Vec<Federation>);

impl Federations {
    /// Those of these settings; `svc` is `svc.Z` in wire form.
    pub(crate) fn of(settings: &Settings, svc: &[u8]) -> Federations {
        let federations = settings.federations.iter().filter_map(|it| {
            // The name has one label, which `check` has bounded; the rest is an unreachable fallback.
            let (&length, after) = it.name.wire().split_first()?;
            let label = after.get(..usize::from(length)).filter(|label| !label.is_empty())?;
            let prefix = it.name.wire().get(..=usize::from(length))?;
            let owner = Name::compose(&[prefix, svc])?;
            let dname =
                |target| Arc::new(Dname { owner: owner.clone(), target, ttl_s: settings.ttl_s });
            let away = it.domain.as_ref();
            let away = away.and_then(|domain| Name::compose(&[prefix, b"\x03svc", domain.wire()]));
            let here = dname(Name::compose(&[svc])?);
            Some(Federation { label: label.into(), here, away: away.map(dname) })
        });
        Federations(federations.collect())
    }

    /// The one of this name.
    pub(crate) fn find(&self, label: &[u8]) -> Option<&Federation> {
        self.0.iter().find(|federation| *federation.label == *label)
    }
}

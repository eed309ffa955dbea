//! Groups of servers in the draft: each suffix, and all other names, have one. Of several lines that name the same servers,
//! the first one decides the rest.

use crds::config::Policy;
use crds::v1alpha1::{GroupLimits, Server, StubDomain, Upstreams};
use crds::{bounds, defaults};

use super::Draft;
use crate::import::values::list;

impl Draft {
    /// The servers that a group can have, and why it cannot have each of the others.
    pub(in crate::import) fn usable(&self, servers: Vec<Server>) -> (Vec<Server>, Vec<String>) {
        let (mut usable, mut lost) = (Vec::new(), Vec::new());
        for server in servers {
            match self.can_ask(&server) {
                Ok(()) if usable.len() < bounds::SERVERS => usable.push(server),
                Ok(()) => {
                    let (address, most) = (&server.address, bounds::SERVERS);
                    lost.push(format!(
                        "{address}: at most {most} servers are possible, and this is one more"
                    ));
                }
                Err(why) => lost.push(why),
            }
        }
        (usable, lost)
    }

    /// Whether a group can have this server.
    ///
    /// # Errors
    /// Why it cannot.
    pub(in crate::import) fn can_ask(&self, server: &Server) -> Result<(), String> {
        self.is_another(server)?;
        let servers = Some(vec![server.clone()]);
        self.alone(|spec| spec.upstreams = Some(Upstreams { servers, ..Upstreams::default() }))
    }

    /// An error for a server that is the one that is replaced.
    fn is_another(&self, server: &Server) -> Result<(), String> {
        let address = &server.address;
        match self.replaced.has_address(address) {
            true => Err(format!(
                "{address} leads to the server that is replaced, so it cannot be asked"
            )),
            false => Ok(()),
        }
    }

    /// Names below this suffix are asked at these servers. What is not as it was written is in the text.
    ///
    /// # Errors
    /// Why a ClusterDNS cannot have it.
    pub(in crate::import) fn stub_domain(
        &mut self,
        stub: StubDomain,
    ) -> Result<Option<String>, String> {
        stub.servers.iter().try_for_each(|server| self.is_another(server))?;
        let known = self.spec.stub_domains.iter().flatten().find(|it| it.domain == stub.domain);
        match known {
            Some(known) if known.servers == stub.servers => {
                return Ok(of_first_line(
                    (known.policy, known.limits.as_ref()),
                    (stub.policy, stub.limits.as_ref()),
                ));
            }
            Some(_) => {
                return Err(format!(
                    "{} has other servers already, which are asked in place of these",
                    stub.domain
                ));
            }
            None => {}
        }
        let count = self.spec.stub_domains.as_ref().map_or(0, Vec::len);
        if count >= bounds::STUB_DOMAINS {
            let most = bounds::STUB_DOMAINS;
            return Err(format!(
                "there are {most} stub domains already, which is the most: forward their parent to one server that knows \
                 them"
            ));
        }
        let ranges = self.spec.reverse_cidrs.clone();
        self.alone(|spec| {
            spec.reverse_cidrs = ranges;
            spec.stub_domains = Some(vec![stub.clone()]);
        })?;
        self.spec.stub_domains.get_or_insert_default().push(stub);
        Ok(None)
    }

    /// Whether something was said about the default servers, besides types that they are not asked for.
    pub(in crate::import) fn has_upstreams(&self) -> bool {
        let bare = |it: &Upstreams| Upstreams { withheld_types: None, ..it.clone() };
        self.spec.upstreams.as_ref().is_some_and(|it| bare(it) != Upstreams::default())
    }

    /// All other names are asked at these servers. What is not as it was written is in the text.
    ///
    /// # Errors
    /// Why a ClusterDNS cannot have it.
    pub(in crate::import) fn upstreams(
        &mut self,
        mut upstreams: Upstreams,
    ) -> Result<Option<String>, String> {
        if !self.has_upstreams() && upstreams.none != Some(true) {
            upstreams.withheld_types =
                self.spec.upstreams.as_ref().and_then(|before| before.withheld_types.clone());
        }
        let servers = |it: &Upstreams| (it.servers.clone(), it.from_resolv_conf, it.none);
        match self.spec.upstreams.as_ref().filter(|_| self.has_upstreams()) {
            Some(known) if servers(known) == servers(&upstreams) => {
                return Ok(of_first_line(
                    (known.policy, known.limits.as_ref()),
                    (upstreams.policy, upstreams.limits.as_ref()),
                ));
            }
            Some(_) => {
                let why =
                    "there are other default servers already, which are asked in place of these";
                return Err(why.to_owned());
            }
            None => {}
        }
        self.alone(|spec| spec.upstreams = Some(upstreams.clone()))?;
        self.spec.upstreams = Some(upstreams);
        Ok(None)
    }
}

impl Draft {
    /// No question for this type goes to the default upstreams, where `of_upstreams` says so, and to stub domains that
    /// `of_stub` chooses. What was changed; nothing where no such group asks a server.
    ///
    /// # Errors
    /// Why a ClusterDNS cannot have it.
    pub(in crate::import) fn withhold(
        &mut self,
        kind: &str,
        of_upstreams: bool,
        of_stub: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, String> {
        let is_none = self.spec.upstreams.as_ref().is_some_and(|it| it.none == Some(true));
        let of_upstreams = of_upstreams && !is_none;
        let stubs = self.spec.stub_domains.iter().flatten().map(|stub| stub.domain.clone());
        let stubs: Vec<String> = stubs.filter(|domain| of_stub(domain)).collect();
        let add = |types: &mut Option<Vec<String>>| {
            let types = types.get_or_insert_default();
            if !types.iter().any(|it| it == kind) {
                types.push(kind.to_owned());
            }
        };
        self.change(|spec| {
            if of_upstreams {
                add(&mut spec.upstreams.get_or_insert_default().withheld_types);
            }
            let all = spec.stub_domains.iter_mut().flatten();
            for stub in all.filter(|stub| stubs.contains(&stub.domain)) {
                add(&mut stub.withheld_types);
            }
        })?;
        let upstreams = of_upstreams.then(|| "spec.upstreams".to_owned());
        let stubs = (!stubs.is_empty()).then(|| format!("spec.stubDomains: {}", list(&stubs)));
        let groups: Vec<String> = upstreams.into_iter().chain(stubs).collect();
        let all = groups.join(" and ");
        Ok((!groups.is_empty()).then(|| {
            format!("withheldTypes: [{kind}] of {all}: such questions have no data, and no server is asked")
        }))
    }
}

/// What a later line that names the same servers does not have as it was written.
fn of_first_line(
    first: (Policy, Option<&GroupLimits>),
    later: (Policy, Option<&GroupLimits>),
) -> Option<String> {
    let mut differs = Vec::new();
    if first.0 != later.0 {
        let (first, later) = (first.0, later.0);
        differs.push(format!("the policy is {first:?}, that of the first line, not {later:?}"));
    }
    let places = |it: Option<&GroupLimits>| it.map_or(defaults::GROUP_IN_FLIGHT, |it| it.in_flight);
    let (first, later) = (places(first.1), places(later.1));
    if first != later {
        differs.push(format!("limits.inFlight is {first}, that of the first line, not {later}"));
    }
    let all = differs.join("; ");
    (!all.is_empty()).then(|| format!("a line before names these servers too: {all}"))
}

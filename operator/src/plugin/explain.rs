//! `explain`: which questions a name leads to in a pod, how each is answered, and why. The search is pure (`search`); each
//! question is explained by the data plane itself (`/explain`), which sends nothing to upstreams.

mod text;

use std::net::IpAddr;
use std::process::ExitCode;

use hyper::Method;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde_json::Value;

use super::args::{Explain, Libc, Output, Which};
use super::asker::allowed;
use super::data_plane::{self, DataPlane, said};
use super::hosts::Hosts;
use super::lookups::{self, Cluster};
use super::output::{Printed, json};
use super::pages::Answer;
use super::resolv_conf::{ResolvConf, of_pod};
use super::search::{Outcome, Search};
use crate::names;
use crate::observe::pods;
use crate::offline::text_of;

/// Questions of one run: a search list has 32 domains, and each name two types.
const MAX_QUESTIONS: usize = 128;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// The name as the user wrote it.
    pub name: String,
    /// The pod that asks, or the file.
    pub from: Option<String>,
    /// Whose rules were followed; none for an absolute name.
    pub libc: Option<&'static str>,
    /// The resolv.conf of the pod's libc.
    pub resolv_conf: Option<ResolvConf>,
    /// The data plane that explained.
    pub asked_of: String,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Every question, in its order.
    pub questions: Vec<Asked>,
    pub result: Outcome,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Absolute name that was asked for.
    pub name: String,
    /// As the data plane writes it.
    #[serde(rename = "type")]
    pub qtype: String,
    pub outcome: Outcome,
    /// What the data plane says.
    pub explanation: Value,
    /// The same, as far as it is read here.
    #[serde(skip)]
    pub answer: Answer,
}

/// What is asked, and by whom.
struct Asker {
    from: Option<String>,
    conf: Option<ResolvConf>,
    hosts: Hosts,
    /// Address of the pod, or of who asks in its place, for `access.clients`.
    client: Option<IpAddr>,
    notes: Vec<String>,
}

pub(super) async fn run(which: &Which, args: &Explain) -> Printed {
    // Invalid arguments are refused before a cluster is asked.
    Search::new(&args.name, &ResolvConf::default(), args.libc)?;
    let (data_plane, asker) = prepared(which, args).await?;
    if let Some(said) = without_dns(&asker.hosts, &args.name).filter(|_| args.qtype.is_none()) {
        let text = match args.output {
            Output::Text => said + "\n",
            Output::Json => json(&of_no_question(args, asker, data_plane.name, said)),
        };
        return Ok((text, ExitCode::SUCCESS));
    }
    let (conf, ignored) = asker.conf.clone().unwrap_or_default().read_by(args.libc);
    let absolute = format!("{}.", args.name.trim_end_matches('.'));
    let reverse = reverse(&args.name, args.qtype.as_deref());
    let itself = if asker.conf.is_some() { &args.name } else { &absolute };
    let name = reverse.as_ref().unwrap_or(itself);
    let search = Search::new(name, &conf, args.libc)?;
    let types: Vec<&str> = match (&args.qtype, &asker.conf) {
        (Some(qtype), _) => vec![qtype],
        (None, Some(_)) => vec!["A", "AAAA"],
        (None, None) => vec!["A"],
    };
    let mut connection = data_plane.open().await?;
    let client = asker.client;
    let mut ask = async |name: &str, qtype: &str| {
        let path = data_plane::explain(name, qtype, client);
        match connection.get(Method::GET, &path).await? {
            (status, text) if status.is_success() => Ok(text),
            (status, text) => Err(said(status, &text)),
        }
    };
    let (questions, result) = questions(search, &types, &mut ask).await?;
    let explained = Explained {
        name: args.name.clone(),
        from: asker.from,
        libc: asker.conf.is_some().then_some(named(args.libc)),
        resolv_conf: asker.conf,
        asked_of: data_plane.name,
        notes: [asker.notes, ignored].concat(),
        questions,
        result,
    };
    let text = match args.output {
        Output::Text => explained.text(),
        Output::Json => json(&explained),
    };
    Ok((text, ExitCode::SUCCESS))
}

fn named(libc: Libc) -> &'static str {
    match libc {
        Libc::Glibc => "glibc",
        Libc::Musl => "musl",
    }
}

/// What `getaddrinfo` takes without a question: an address, and a name of the pod's hosts file.
fn without_dns(hosts: &Hosts, name: &str) -> Option<String> {
    if name.parse::<IpAddr>().is_ok() {
        return Some(format!("{name} is an address: DNS is not asked; its name has the type PTR"));
    }
    let address = hosts.address(name)?;
    Some(format!("{name} is {address} in the hosts file of the pod: DNS is not asked"))
}

/// The name of the PTR of an address.
fn reverse(name: &str, qtype: Option<&str>) -> Option<String> {
    let address =
        name.parse().ok().filter(|_| qtype.is_some_and(|it| it.eq_ignore_ascii_case("PTR")))?;
    Some(format!("{}.", names::reverse(address)))
}

/// A name that leads to no question.
fn of_no_question(args: &Explain, asker: Asker, asked_of: String, said: String) -> Explained {
    Explained {
        name: args.name.clone(),
        from: asker.from,
        libc: asker.conf.is_some().then_some(named(args.libc)),
        resolv_conf: asker.conf,
        asked_of,
        notes: [asker.notes, vec![said]].concat(),
        questions: Vec::new(),
        result: Outcome::Found,
    }
}

async fn prepared(which: &Which, args: &Explain) -> Result<(DataPlane, Asker), String> {
    let (hosts, client) = (Hosts::default(), args.client);
    let mut asker = Asker { from: None, conf: None, hosts, client, notes: Vec::new() };
    if let Some(file) = &args.resolv_conf {
        let (name, text) = text_of(file)?;
        (asker.from, asker.conf) = (Some(name), Some(ResolvConf::read(&text)));
    }
    if let (None, Some(address)) = (&args.from, which.address) {
        return Ok((lookups::at(which, address), asker));
    }
    let cluster = Cluster::connect(which).await?;
    let dns = cluster.cluster_dns(which.clusterdns.as_deref()).await?;
    let Some(from) = &args.from else {
        if let (None, Some((client, note))) = (asker.client, allowed(&dns.spec)) {
            asker.client = Some(client);
            asker.notes.push(note);
        }
        return Ok((cluster.asked(which, &dns).await?, asker));
    };
    let pod = cluster.pod(from).await?;
    let shown =
        format!("{}/{}", pod.metadata.namespace.as_deref().unwrap_or("default"), pods::name(&pod));
    let cluster_ips =
        dns.status.as_ref().map(|status| status.cluster_ips.clone()).unwrap_or_default();
    let (conf, notes) = of_pod(&pod, &dns.spec.domain, &cluster_ips, &args.node_search)
        .map_err(|why| format!("pod {shown}: {why}"))?;
    asker.hosts = Hosts::of_pod(&pod, &dns.spec.domain);
    asker.client = address(&pod, &conf);
    (asker.from, asker.conf, asker.notes) = (Some(format!("pod {shown}")), Some(conf), notes);
    let data_plane = match which.address {
        Some(address) => lookups::at(which, address),
        None => cluster.asked(which, &dns).await?,
    };
    Ok((data_plane, asker))
}

/// The address from which the pod asks its first server.
fn address(pod: &Pod, conf: &ResolvConf) -> Option<IpAddr> {
    let first: Vec<IpAddr> = conf.first_server().into_iter().collect();
    pods::address_beside(pod, &first)
}

/// Asks what the search leads to, one name after the other. `ask` gets the page for a name and a type.
///
/// # Errors
/// What the data plane says is wrong with a question, or why it cannot be asked.
pub async fn questions(
    mut search: Search,
    types: &[&str],
    ask: &mut impl AsyncFnMut(&str, &str) -> Result<String, String>,
) -> Result<(Vec<Asked>, Outcome), String> {
    let mut all = Vec::new();
    while let Some(name) = search.next_name() {
        let mut outcomes = Vec::new();
        for qtype in types {
            if all.len() >= MAX_QUESTIONS {
                return Err(format!("the search has more than {MAX_QUESTIONS} questions"));
            }
            let page = ask(&name, qtype).await?;
            let explanation: Value = serde_json::from_str(&page)
                .map_err(|error| format!("its /explain is no JSON: {error}"))?;
            let answer = Answer::read(&explanation)?;
            let outcome = answer.outcome();
            outcomes.push(outcome);
            let (name, qtype) = (name.clone(), answer.qtype.clone());
            all.push(Asked { name, qtype, outcome, explanation, answer });
        }
        search.saw(together(search.libc(), &outcomes));
    }
    Ok((all, search.verdict()))
}

/// The outcome of one name in the C library. glibc: one record is enough, and a failure counts more than no data.
/// musl (`name_from_dns`): the first reply that is no NOERROR decides, also where another one has records.
fn together(libc: Libc, outcomes: &[Outcome]) -> Outcome {
    use Outcome::{Failed, Found, NoData, NxDomain, ServFail, Unknown};
    let first = |order: &[Outcome]| order.iter().copied().find(|it| outcomes.contains(it));
    match libc {
        Libc::Glibc => first(&[Found, Unknown, ServFail, Failed, NxDomain]),
        Libc::Musl => {
            let decides = |it: &&Outcome| matches!(it, ServFail | NxDomain | Failed | Unknown);
            outcomes.iter().find(decides).copied().or_else(|| first(&[Found]))
        }
    }
    .unwrap_or(NoData)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_asks_from_its_address_of_the_family_of_its_first_server() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"metadata": {"name": "web-0"},
            "status": {"podIP": "fd00:1::5", "podIPs": [{"ip": "fd00:1::5"}, {"ip": "10.1.0.5"}]}}))
        .unwrap();
        let asks_from =
            |file: &str| address(&pod, &ResolvConf::read(file)).map(|ip| ip.to_string());
        let of = |address: &str| Some(address.to_owned());
        assert_eq!(asks_from("nameserver 10.96.0.10\nnameserver fd00:96::a"), of("10.1.0.5"));
        assert_eq!(asks_from("nameserver fd00:96::a\nnameserver 10.96.0.10"), of("fd00:1::5"));
        assert_eq!(asks_from(""), of("fd00:1::5"));
    }

    /// A program reads the same fields as of any other name.
    #[test]
    fn a_name_of_the_hosts_file_is_json_with_a_note_and_without_questions() {
        let args = Explain {
            name: "web-0".to_owned(),
            from: Some("shop/web-0".to_owned()),
            libc: Libc::Musl,
            output: Output::Json,
            ..Explain::default()
        };
        let asker = Asker {
            from: Some("pod shop/web-0".to_owned()),
            conf: Some(ResolvConf::default()),
            hosts: Hosts::default(),
            client: None,
            notes: vec!["one".to_owned()],
        };
        let explained = of_no_question(&args, asker, "pod dns".to_owned(), "two".to_owned());
        let page: Value = serde_json::from_str(&json(&explained)).unwrap();
        assert_eq!(page["notes"], serde_json::json!(["one", "two"]));
        assert_eq!((&page["questions"], &page["libc"]), (&serde_json::json!([]), &"musl".into()));
        assert_eq!(page["from"], "pod shop/web-0");
    }

    #[test]
    fn an_address_is_no_name_that_is_searched() {
        let hosts = Hosts::of_pod(&Pod::default(), "cluster.local");
        for (name, says) in [
            ("10.0.0.1", Some("10.0.0.1 is an address")),
            ("fd00::1", Some("fd00::1 is an address")),
            ("localhost", Some("127.0.0.1 in the hosts file")),
            ("10.0.0.1.", None),
            ("cart", None),
        ] {
            let said = without_dns(&hosts, name);
            assert_eq!(said.is_some(), says.is_some(), "{name}");
            assert!(said.unwrap_or_default().contains(says.unwrap_or_default()), "{name}");
        }
        let of = |name: &str, qtype: &str| reverse(name, Some(qtype));
        assert_eq!(of("10.0.0.1", "ptr").as_deref(), Some("1.0.0.10.in-addr.arpa."));
        assert_eq!(
            [of("10.0.0.1", "A"), of("cart", "PTR"), reverse("10.0.0.1", None)],
            [const { None }; 3]
        );
    }

    #[test]
    fn one_record_is_enough_for_glibc_and_every_reply_must_be_good_for_musl() {
        use Outcome::{Found, NoData, NxDomain, ServFail, Unknown};
        let rows = [
            ([Found, NoData], Found, Found),
            ([Found, ServFail], Found, ServFail),
            ([Found, NxDomain], Found, NxDomain),
            ([Found, Unknown], Found, Unknown),
            ([NxDomain, ServFail], ServFail, NxDomain),
            ([NoData, NoData], NoData, NoData),
        ];
        for (outcomes, glibc, musl) in rows {
            assert_eq!(together(Libc::Glibc, &outcomes), glibc, "{outcomes:?}");
            assert_eq!(together(Libc::Musl, &outcomes), musl, "{outcomes:?}");
        }
    }
}

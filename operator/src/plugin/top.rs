//! `top`: the heaviest names, clients and denied names of the next seconds, of all data planes together. Each pod counts
//! from when it is asked on, in a sketch of fixed memory, and ends by itself.

use std::process::ExitCode;
use std::time::Duration;

use crds::between_planes::LONGEST_TOP;
use futures::StreamExt;
use hyper::Method;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use super::args::{Output, Top, TopKind, Which};
use super::data_plane::DataPlane;
use super::lookups::{self, Cluster};
use super::output::{Printed, json};
use super::table::{self, table, with_heading};
use crate::observe::pods;

/// Pods that are asked.
const MAX_ASKED: usize = 50;
/// The pods count for longer than is waited, so that the last of them has not ended before it is read.
const MARGIN: Duration = Duration::from_secs(30);
/// Shorter times count too little to say anything.
const SHORTEST: Duration = Duration::from_secs(1);

/// `/top` of one data plane.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopPage {
    /// The data plane counts at present.
    pub is_on: bool,
    /// For how long it has.
    pub seconds: u64,
    /// Queries counted in that time.
    pub queries: u64,
    /// One of this many is counted at present.
    pub one_of: u32,
    /// Queries that were drawn and not counted, because another thread counted at that moment.
    pub passed_over: u64,
    /// Names and types, the heaviest first.
    pub names: Vec<TopRow>,
    /// Addresses of clients, the heaviest first.
    pub clients: Vec<TopRow>,
    /// Names that were answered with NXDOMAIN.
    pub denials: Vec<TopRow>,
}

/// One of the heaviest names or clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopRow {
    /// A name, or an address.
    pub key: String,
    /// Record type; only for names.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub qtype: Option<String>,
    /// Queries, never too few of one pod.
    pub count: u64,
    /// The count is too high by this at most.
    pub error: u64,
}

/// The result of `top`, summed over pods.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Heaviest {
    /// `names`, `clients` or `denials`.
    pub kind: &'static str,
    /// For how long the pods counted, the longest.
    pub seconds: u64,
    /// Pods that counted.
    pub pods: usize,
    /// Queries of all of them.
    pub queries: u64,
    /// One of this many was counted at the end, in the busiest pod.
    pub one_of: u32,
    /// Queries that were drawn and not counted, of all pods: they are in no count.
    pub passed_over: u64,
    /// Rows, the heaviest first.
    pub rows: Vec<TopRow>,
    /// Pods that did not, and why.
    pub not_asked: Vec<String>,
}

/// Asks the data planes to count for `--for`, and prints the sums.
pub(super) async fn run(which: &Which, args: &Top) -> Printed {
    if args.during < SHORTEST || args.during > LONGEST_TOP.saturating_sub(MARGIN) {
        return Err(format!(
            "--for: write 1s to {}s",
            LONGEST_TOP.saturating_sub(MARGIN).as_secs()
        ));
    }
    let (data_planes, beyond) = data_planes(which).await?;
    let seconds = (args.during + MARGIN).as_secs();
    let path = format!("/top?seconds={seconds}");
    some(asked(&data_planes, Method::POST, &path).await)?;
    tokio::time::sleep(args.during).await;
    let pages = some(asked(&data_planes, Method::GET, "/top").await)?;
    let pages = pages.into_iter().chain(beyond.into_iter().map(Err)).collect();
    let heaviest = Heaviest::of(args.kind, args.limit, pages);
    let text = match args.output {
        Output::Text => heaviest.text(),
        Output::Json => json(&heaviest),
    };
    Ok((text, ExitCode::SUCCESS))
}

/// The pages, if one pod at least has one.
///
/// # Errors
/// Why the first of the others has none.
fn some(pages: Vec<Result<TopPage, String>>) -> Result<Vec<Result<TopPage, String>>, String> {
    if pages.iter().any(Result::is_ok) {
        return Ok(pages);
    }
    let first = pages.into_iter().find_map(Result::err);
    Err(first.unwrap_or_else(|| "there is no data plane to ask".to_owned()))
}

/// Those that answer: one of the flags, else each pod that is ready; and why others are not asked.
async fn data_planes(which: &Which) -> Result<(Vec<DataPlane>, Vec<String>), String> {
    if let Some(address) = which.address {
        return Ok((vec![lookups::at(which, address)], Vec::new()));
    }
    let cluster = Cluster::connect(which).await?;
    let dns = cluster.cluster_dns(which.clusterdns.as_deref()).await?;
    if which.pod.is_some() {
        return Ok((vec![cluster.asked(which, &dns).await?], Vec::new()));
    }
    let pods = cluster.pods(&dns).await?;
    let ready: Vec<&Pod> = pods.iter().filter(|pod| pods::is_ready(pod)).collect();
    let asked = ready.iter().take(MAX_ASKED).map(|pod| cluster.data_plane(pod)).collect();
    Ok((asked, beyond(&ready)))
}

/// The pods that are too many, each with the reason.
fn beyond(ready: &[&Pod]) -> Vec<String> {
    let beyond = ready.iter().skip(MAX_ASKED).map(|pod| pods::name(pod));
    beyond.map(|name| format!("pod {name}: only {MAX_ASKED} pods are asked at once")).collect()
}

async fn asked(
    data_planes: &[DataPlane],
    method: Method,
    path: &str,
) -> Vec<Result<TopPage, String>> {
    let one = async |data_plane: &DataPlane| {
        let mut connection = data_plane.open().await?;
        let text = connection.page(method.clone(), path).await?;
        counting(&data_plane.name, &text)
    };
    // All at once: they should count at the same time.
    futures::stream::iter(data_planes.iter().map(one)).buffered(MAX_ASKED).collect().await
}

/// The page of a data plane that counts. One that does not has counted nothing of this time.
fn counting(name: &str, text: &str) -> Result<TopPage, String> {
    let page: TopPage = serde_json::from_str(text)
        .map_err(|error| format!("{name}: cannot read its /top: {error}"))?;
    match page.is_on {
        true => Ok(page),
        false => Err(format!("{name}: it does not count: it was started again meanwhile")),
    }
}

impl Heaviest {
    /// The pages of all pods together: counts and errors of one key are added.
    pub fn of(kind: TopKind, limit: usize, pages: Vec<Result<TopPage, String>>) -> Heaviest {
        let name = match kind {
            TopKind::Names => "names",
            TopKind::Clients => "clients",
            TopKind::Denials => "denials",
        };
        let mut all = Heaviest { kind: name, ..Heaviest::default() };
        for page in pages {
            let page = match page {
                Ok(page) => page,
                Err(why) => {
                    all.not_asked.push(why);
                    continue;
                }
            };
            all.pods += 1;
            all.seconds = all.seconds.max(page.seconds);
            all.queries += page.queries;
            all.one_of = all.one_of.max(page.one_of);
            all.passed_over += page.passed_over;
            let rows = match kind {
                TopKind::Names => page.names,
                TopKind::Clients => page.clients,
                TopKind::Denials => page.denials,
            };
            for row in rows {
                let is_it = |it: &&mut TopRow| it.key == row.key && it.qtype == row.qtype;
                match all.rows.iter_mut().find(is_it) {
                    Some(known) => {
                        known.count += row.count;
                        known.error += row.error;
                    }
                    None => all.rows.push(row),
                }
            }
        }
        all.rows.sort_by(|a, b| (b.count, &a.key).cmp(&(a.count, &b.key)));
        all.rows.truncate(limit);
        all
    }

    /// Lines for a terminal.
    pub fn text(&self) -> String {
        let Heaviest { kind, seconds, pods, queries, one_of, passed_over, rows, not_asked } = self;
        let drawn = match one_of {
            0 | 1 => String::new(),
            one_of => format!(", one of {one_of} counted at the end"),
        };
        let missed = match passed_over {
            0 => String::new(),
            passed_over => format!(", {passed_over} more drawn and not counted"),
        };
        let pods = if *pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
        let mut text =
            format!("{kind} of {seconds} s, {pods}: {queries} queries{drawn}{missed}\n\n");
        let row = |row: &TopRow| {
            let share = 100.0 * row.count as f64 / (*queries).max(1) as f64;
            let error = if row.error == 0 { "-".to_owned() } else { format!("-{}", row.error) };
            let shown = match &row.qtype {
                Some(qtype) => format!("{} {qtype}", row.key),
                None => row.key.clone(),
            };
            vec![row.count.to_string(), error, format!("{share:.1} %"), shown]
        };
        let what = if *kind == "clients" { "CLIENT" } else { "NAME" };
        text.push_str(&table(&with_heading(
            &["QUERIES", "ERROR", "SHARE", what],
            rows.iter().map(row),
        )));
        text.push_str(&table::not_asked(not_asked));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(queries: u64, rows: &[(&str, u64, u64)]) -> TopPage {
        let row = |(key, count, error): &(&str, u64, u64)| TopRow {
            key: (*key).to_owned(),
            qtype: Some("A".to_owned()),
            count: *count,
            error: *error,
        };
        let names = rows.iter().map(row).collect();
        TopPage { is_on: true, seconds: 10, queries, one_of: 4, names, ..TopPage::default() }
    }

    #[test]
    fn pods_that_are_too_many_are_named_and_not_passed_over() {
        let named = |number: usize| {
            let mut pod = Pod::default();
            pod.metadata.name = Some(format!("dns-{number}"));
            pod
        };
        let pods: Vec<Pod> = (0..=MAX_ASKED).map(named).collect();
        let pods: Vec<&Pod> = pods.iter().collect();
        assert_eq!(beyond(&pods), ["pod dns-50: only 50 pods are asked at once"]);
        assert!(beyond(&pods[..MAX_ASKED]).is_empty());
    }

    #[test]
    fn a_pod_that_was_started_again_is_not_a_pod_without_queries() {
        let counts =
            counting("pod dns/x", r#"{"isOn": true, "queries": 3, "passedOver": 2}"#).unwrap();
        assert_eq!((counts.queries, counts.passed_over), (3, 2));
        let why = counting("pod dns/x", r#"{"isOn": false}"#).unwrap_err();
        let heaviest = Heaviest::of(TopKind::Names, 9, vec![Ok(counts), Err(why)]);
        let text = heaviest.text();
        assert!(
            text.starts_with("names of 0 s, 1 pod: 3 queries, 2 more drawn and not counted\n"),
            "{text}"
        );
        assert!(
            text.contains("not asked  pod dns/x: it does not count: it was started again"),
            "{text}"
        );
    }

    #[test]
    fn pods_that_all_failed_are_no_empty_list() {
        let failed = || Err("pod dns/x: it does not count".to_owned());
        assert_eq!(some(vec![failed()]).unwrap_err(), "pod dns/x: it does not count");
        assert!(some(Vec::new()).is_err());
        assert_eq!(some(vec![failed(), Ok(page(1, &[]))]).unwrap().len(), 2);
    }

    #[test]
    fn pods_are_added_up_and_those_that_did_not_answer_are_named() {
        let pages = vec![
            Ok(page(100, &[("a.example.", 60, 0), ("b.example.", 10, 0)])),
            Ok(page(300, &[("b.example.", 70, 2), ("c.example.", 5, 0)])),
            Err("pod dns/x cannot be reached: no".to_owned()),
        ];
        let text = Heaviest::of(TopKind::Names, 2, pages).text();
        let expected = "names of 10 s, 2 pods: 400 queries, one of 4 counted at the end\n\n\
            QUERIES  ERROR  SHARE   NAME\n\
            80       -2     20.0 %  b.example. A\n\
            60       -      15.0 %  a.example. A\n\
            not asked  pod dns/x cannot be reached: no\n";
        assert_eq!(text, expected);
        assert!(
            Heaviest::of(TopKind::Clients, 9, vec![Ok(page(9, &[("a.", 1, 0)]))]).rows.is_empty()
        );
    }
}

//! The page `/` as HTML: everything that others wrote is escaped, and the policy allows neither scripts nor anything from
//! elsewhere. States are words, so that colours are not needed; tables scroll by themselves on a phone.

use std::fmt::{Display, Write};

use super::{Explained, Shown};
use crate::status::Rejection;

/// Letters as wide as the device; one column; light or dark as the device says.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:0 1rem}\
.wide{overflow-x:auto}\
table{border-collapse:collapse}\
th,td{text-align:left;padding:.15rem .8rem .15rem 0;border-bottom:1px solid;vertical-align:top}\
td.n,th.n{text-align:right}\
pre{overflow-x:auto;border:1px solid;padding:.5rem}\
input{font:inherit;max-width:100%}";

/// The Content-Security-Policy: the page's own style, its own form, and nothing else (CSP level 3).
pub(super) fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
}

/// Text between tags or in a quoted attribute (HTML standard, section 13.1.2).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A table; cells of the columns named `#…` are numbers.
fn table(page: &mut String, columns: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    page.push_str("<div class=\"wide\"><table><tr>");
    let class = |column: &str| if column.starts_with('#') { " class=\"n\"" } else { "" };
    for column in columns {
        // Writing to a String cannot fail.
        let _ = write!(page, "<th{}>{}</th>", class(column), column.trim_start_matches('#'));
    }
    page.push_str("</tr>\n");
    for row in rows {
        page.push_str("<tr>");
        // By reference: LLVM 22 orders what it makes of dropping the rest of a zipped row by chance, and two builds differ (P5).
        for (column, cell) in columns.iter().zip(&row) {
            let _ = write!(page, "<td{}>{}</td>", class(column), escaped(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn or_dash(value: Option<impl Display>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn duration(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.001 => format!("{:.0} us", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}

pub(super) fn page(shown: &Shown, nonce: &str) -> String {
    let title = escaped(&format!("ClusterDNS {}", shown.pod_name));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style nonce=\"{nonce}\">{STYLE}</style></head>\n<body><main>\n\
         <h1>{title}</h1>\n"
    );
    let ready = match shown.why_not_ready.is_empty() {
        true => "ready".to_owned(),
        false => format!("not ready: {}", shown.why_not_ready.join("; ")),
    };
    let _ = writeln!(
        page,
        "<p>State: {}. Version {}, configuration {}.</p>",
        escaped(&ready),
        escaped(&shown.version),
        escaped(&shown.revision)
    );
    refused(&mut page, shown);
    explain_box(&mut page, shown.explained.as_ref());
    answers(&mut page, shown);
    upstreams(&mut page, shown);
    data(&mut page, shown);
    page.push_str(
        "<p>More: <a href=\"/config\">/config</a> <a href=\"/upstreams?format=text\">/upstreams</a> \
         <a href=\"/metrics\">/metrics</a> <a href=\"/readyz\">/readyz</a></p>\n</main></body></html>\n",
    );
    page
}

/// What was written and does not run: nothing where all of it runs.
fn refused(page: &mut String, shown: &Shown) {
    if let Some(rejection) = &shown.rejection {
        rejected(page, rejection, shown.is_unconfigured);
    }
    if !shown.ignored.is_empty() {
        page.push_str("<h2>Fields without effect</h2>\n");
        for field in &shown.ignored {
            let _ = writeln!(page, "<p>{}</p>", escaped(field));
        }
    }
    if shown.bad_file_count > 0 {
        let _ = writeln!(page, "<h2>Files not used as they are: {}</h2>", shown.bad_file_count);
        let rows = shown.bad_files.iter().map(|file| vec![file.path.clone(), file.error.clone()]);
        table(page, &["file", "why its last good content is used"], rows);
    }
}

fn rejected(page: &mut String, rejection: &Rejection, is_unconfigured: bool) {
    let what = if rejection.is_of_none() { "No configuration was given" } else { "Refused" };
    let instead = match is_unconfigured {
        true => "No configuration is in use yet.",
        false => "The last good configuration stays in use.",
    };
    let _ = writeln!(page, "<h2>{what}: {}</h2>\n<p>{instead}</p>", escaped(&rejection.origin));
    let rows = rejection.violations.iter().map(|violation| {
        vec![
            or_dash(violation.line),
            violation.field.clone(),
            violation.reason.clone(),
            violation.message.clone(),
        ]
    });
    table(page, &["#line", "field", "reason", "what to write"], rows);
}

fn explain_box(page: &mut String, explained: Option<&Explained>) {
    let (name, qtype) = explained
        .map_or(("", "A"), |explained| (explained.name.as_str(), explained.qtype.as_str()));
    let _ = write!(
        page,
        "<h2>Why this answer?</h2>\n<form method=\"get\" action=\"/\">\
         <label>Name <input name=\"name\" value=\"{}\" required maxlength=\"1000\" autocapitalize=\"none\"></label> \
         <label>Type <input name=\"type\" value=\"{}\" size=\"6\" maxlength=\"10\"></label> \
         <button>Explain</button></form>\n",
        escaped(name),
        escaped(qtype)
    );
    if let Some(explained) = explained {
        let _ = writeln!(page, "<pre id=\"explained\">{}</pre>", escaped(&explained.text));
    }
}

fn answers(page: &mut String, shown: &Shown) {
    page.push_str("<h2>Replies</h2>\n");
    let rows = shown.outcomes.iter().map(|row| {
        vec![
            row.origin.to_owned(),
            row.count.to_string(),
            row.rate.map_or("-".to_owned(), |rate| format!("{rate:.1}")),
            duration(row.mean_s),
            duration(row.median_s),
            duration(row.slow_s),
        ]
    });
    let rate = match shown.rate_span {
        None => "#a second, since the look before".to_owned(),
        Some(span) => format!("#a second, of the last {} s", span.as_secs()),
    };
    table(page, &["from", "#replies", &rate, "#mean", "#half at most", "#99 % at most"], rows);
    page.push_str(
        "<p>Times are of all replies since the process began, from the arrival of the query at the kernel. The last two are \
         bounds, each twice the one before: 1.1 ms is shown as 2.0 ms.</p>\n",
    );
    let codes =
        shown.rcodes.iter().map(|(code, count)| vec![(*code).to_owned(), count.to_string()]);
    table(page, &["status", "#replies"], codes);
}

fn upstreams(page: &mut String, shown: &Shown) {
    page.push_str("<h2>Upstreams</h2>\n");
    let servers = shown.upstreams.groups.iter().flat_map(|group| {
        group.servers.iter().map(|server| {
            vec![
                group.name.clone(),
                server.full_name(),
                match server.seconds {
                    Some(seconds) => format!("{} for {seconds} s", server.state),
                    None => server.state.to_owned(),
                },
                duration(server.latency_microseconds.map(|us| us as f64 / 1e6)),
                server.sent.to_string(),
                server.good.to_string(),
                server.errors.to_string(),
                server.silent.to_string(),
            ]
        })
    });
    let columns = ["group", "server", "state", "#latency", "#sent", "#good", "#errors", "#silent"];
    table(page, &columns, servers);
    for warning in &shown.upstreams.warnings {
        let _ = writeln!(page, "<p>Warning: {}</p>", escaped(warning));
    }
    let (entries, octets, found) = &shown.cache;
    let _ = writeln!(page, "<h2>Cache</h2>\n<p>{entries} entries, {octets} octets.</p>");
    let rows = found.iter().map(|(outcome, count)| vec![(*outcome).to_owned(), count.to_string()]);
    table(page, &["found", "#queries"], rows);
}

fn data(page: &mut String, shown: &Shown) {
    page.push_str("<h2>Data</h2>\n");
    let rows = shown.feeds.iter().map(|feed| {
        vec![
            feed.resource.to_owned(),
            feed.objects.to_string(),
            feed.source.to_owned(),
            or_dash(feed.contact_s.map(|seconds| format!("{seconds} s ago"))),
            feed.trouble.clone().unwrap_or_else(|| "none".to_owned()),
        ]
    });
    table(page, &["resource", "#objects", "source", "#heard of", "trouble"], rows);
    let _ = writeln!(page, "<h2>Not served in full: {}</h2>", shown.skipped_count);
    if !shown.skipped.is_empty() {
        let rows = shown.skipped.iter().map(|skipped| {
            vec![
                skipped.kind.to_owned(),
                format!("{}/{}", skipped.namespace, skipped.name),
                skipped.reason.clone(),
            ]
        });
        table(page, &["kind", "object", "why"], rows);
    }
    let _ = writeln!(page, "<h2>Warnings: {}</h2>", shown.warning_count);
    for warning in &shown.warnings {
        let _ = writeln!(page, "<p>{}</p>", escaped(warning));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Violation;

    #[test]
    fn what_others_wrote_cannot_become_markup() {
        assert_eq!(
            escaped("<script>\"it's\" & more"),
            "&lt;script&gt;&quot;it&#39;s&quot; &amp; more"
        );
        let mut page = String::new();
        table(&mut page, &["a", "#b"], [vec!["<i>".to_owned(), "1".to_owned()]].into_iter());
        assert!(page.contains("<td>&lt;i&gt;</td><td class=\"n\">1</td>"), "{page}");
    }

    #[test]
    fn durations_have_the_unit_that_people_read() {
        let shown = [None, Some(0.000_25), Some(0.0042), Some(1.25)].map(duration);
        assert_eq!(shown, ["-", "250 us", "4.2 ms", "1.2 s"]);
    }

    #[test]
    fn e44_the_page_says_what_runs_where_a_configuration_is_refused_or_not_given() {
        let shown = |reason: &str, is_unconfigured| {
            let [field, reason, message] = ["", reason, "why"].map(str::to_owned);
            let violations = vec![Violation { field, reason, message, line: None }];
            let rejection = Rejection { origin: "ConfigMap a/b".to_owned(), violations };
            let mut page = String::new();
            rejected(&mut page, &rejection, is_unconfigured);
            page
        };
        for (reason, what) in [("Missing", "No configuration was given: "), ("Bad", "Refused: ")] {
            for (is_unconfigured, stays) in [(true, false), (false, true)] {
                let page = shown(reason, is_unconfigured);
                assert!(page.starts_with(&format!("<h2>{what}ConfigMap a/b")), "{page}");
                assert_eq!(page.contains("stays in use"), stays, "{page}");
            }
        }
    }
}

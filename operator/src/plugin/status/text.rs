//! What `status` prints for a terminal.

use std::fmt::Write;

use super::super::table::{not_asked, octets, table, with_heading};
use super::{PodRow, Screen, UpstreamRow};

const MAX_WARNINGS: usize = 10;

impl Screen {
    pub fn text(&self) -> String {
        // Writing to a String cannot fail.
        let mut text = String::new();
        self.write_head(&mut text);
        text.push_str(&table(&self.pod_rows()));
        if !self.upstreams.is_empty() {
            text.push('\n');
            text.push_str(&table(&self.upstream_rows()));
        }
        let cache = &self.cache;
        let _ = write!(text, "\ncache      {} entries, {}", cache.entries, octets(cache.octets));
        if cache.lookups > 0 {
            let share = 100.0 * cache.hits as f64 / cache.lookups as f64;
            let _ = write!(text, "; {share:.1} % of {} look-ups answered from it", cache.lookups);
        }
        text.push('\n');
        for object in &self.skipped {
            let namespace = match object.namespace.as_str() {
                "" => String::new(),
                namespace => format!("{namespace}/"),
            };
            let _ = writeln!(
                text,
                "skipped    {} {namespace}{}: {}",
                object.kind, object.name, object.reason
            );
        }
        let more = self.skipped_count.saturating_sub(self.skipped.len() as u64);
        if more > 0 {
            let _ = writeln!(text, "skipped    and {more} more");
        }
        for warning in self.warnings.iter().take(MAX_WARNINGS) {
            let _ = writeln!(text, "warning    {warning}");
        }
        let more = self.warnings.len().saturating_sub(MAX_WARNINGS);
        if more > 0 {
            let _ = writeln!(text, "warning    and {more} more: see /config of the pods");
        }
        text.push_str(&not_asked(&self.not_asked));
        text
    }

    fn write_head(&self, text: &mut String) {
        let Some((name, generation)) = &self.cluster_dns else { return };
        let status = &self.status;
        let domain = status.domain.as_deref().unwrap_or("no domain yet");
        let _ = write!(text, "ClusterDNS {name}, generation {generation}: {domain}");
        if !status.cluster_ips.is_empty() {
            let _ = write!(text, " at {}", status.cluster_ips.join(", "));
        }
        if status.observed_generation.is_some_and(|observed| observed < *generation) {
            text.push_str("; the operator has not seen the last edit yet");
        }
        text.push('\n');
        let conditions = status.conditions.iter().map(|it| match it.reason.as_str() {
            reason
                if !reason.is_empty() && it.status != "True"
                    || it.type_ == "Degraded" && it.status == "True" =>
            {
                format!("{}={} ({reason})", it.type_, it.status)
            }
            _ => format!("{}={}", it.type_, it.status),
        });
        let conditions: Vec<String> = conditions.collect();
        if !conditions.is_empty() {
            let _ = writeln!(text, "conditions {}", conditions.join("  "));
        }
        let degraded =
            status.conditions.iter().find(|it| it.type_ == "Degraded" && it.status == "True");
        if let Some(degraded) = degraded {
            let _ = writeln!(text, "degraded   {}", degraded.message);
        }
        for violation in &status.violations {
            let _ = writeln!(text, "violation  {}: {}", violation.field, violation.message);
        }
        let or_none = |revision: &str| match revision {
            "" => "none".to_owned(),
            revision => revision.to_owned(),
        };
        if let Some(revision) = &status.revision {
            let _ = writeln!(
                text,
                "revisions  desired {}, stable {}, canary {}",
                or_none(&revision.desired),
                or_none(&revision.stable),
                or_none(&revision.canary)
            );
        }
        if let Some(replicas) = &status.replicas {
            let lost = self.pods.iter().filter(|pod| pod.state == "lost").count();
            let lost = if lost > 0 { format!(", {lost} lost") } else { String::new() };
            let _ = writeln!(
                text,
                "pods       {} of {} ready, {} on the stable revision{lost}",
                replicas.ready, replicas.desired, replicas.on_stable_revision
            );
        }
        text.push('\n');
    }

    fn pod_rows(&self) -> Vec<Vec<String>> {
        let heading =
            ["POD", "NODE", "STATE", "RESTARTS", "ROLE", "REVISION", "OBJECTS", "SKIPPED"];
        let row = |pod: &PodRow| {
            let PodRow { name, node, state, restarts, role, revision, objects, skipped } = pod;
            let number = |number: &Option<u64>| number.map_or("-".to_owned(), |it| it.to_string());
            vec![
                name.clone(),
                shown(node),
                (*state).to_owned(),
                restarts.to_string(),
                shown(role),
                shown(revision),
                number(objects),
                number(skipped),
            ]
        };
        with_heading(&heading, self.pods.iter().map(row))
    }

    fn upstream_rows(&self) -> Vec<Vec<String>> {
        let heading =
            ["GROUP", "SERVER", "TRANSPORT", "STATE", "LATENCY", "SENT", "ERRORS", "SILENT"];
        let row = |row: &UpstreamRow| {
            let UpstreamRow {
                group,
                server,
                transport,
                server_name,
                states,
                latency_microseconds,
                sent,
                errors,
                silent,
            } = row;
            let state = match states.len() {
                1 => states.keys().cloned().collect(),
                _ => states
                    .iter()
                    .map(|(state, pods)| format!("{state} in {pods}"))
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            let latency = latency_microseconds
                .map_or("-".to_owned(), |it| format!("{:.1} ms", it as f64 / 1_000.0));
            vec![
                group.clone(),
                server.clone(),
                shown(format!("{transport} {server_name}").trim()),
                state,
                latency,
                sent.to_string(),
                errors.to_string(),
                silent.to_string(),
            ]
        };
        with_heading(&heading, self.upstreams.iter().map(row))
    }
}

fn shown(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

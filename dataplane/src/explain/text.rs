//! An explanation as lines for a terminal.

use std::fmt::Write;

use super::upstream::Giver;
use super::{Explanation, Object, RuleView, Step, Upstream};
use crate::forward::full_name;

/// Width of the first column.
const INDENT: &str = "   ";

impl Explanation {
    /// Lines for a terminal.
    pub fn text(&self) -> String {
        let Explanation {
            name,
            qtype,
            client,
            revision,
            reason,
            origin,
            rule,
            steps,
            ttl,
            status: _,
            answer: _,
            reply,
        } = self;
        // Writing to a String cannot fail.
        let mut text = format!("{name} {qtype}, asked by {client}\n");
        if !revision.is_empty() {
            let _ = writeln!(text, "configuration {revision}");
        }
        for (place, step) in steps.iter().enumerate() {
            let _ = write!(text, "\n{}. ", place + 1);
            step.write(&mut text);
        }
        let _ = writeln!(text, "\noutcome  {reason}, from: {origin}");
        if let Some(rule) = rule {
            write_rule(&mut text, rule);
        }
        if let Some(ttl) = ttl {
            let _ = writeln!(text, "ttl      {} s: {}", ttl.seconds, ttl.from);
        }
        match reply {
            Some(reply) => {
                let _ = write!(text, "\n{reply}");
            }
            None => {
                text.push_str("\nno reply is known: an explanation sends nothing to upstreams\n")
            }
        }
        text
    }
}

fn write_rule(text: &mut String, RuleView { id, words }: &RuleView) {
    let _ = writeln!(text, "{INDENT}rule   {id}: {words}");
}

impl Step {
    fn write(&self, text: &mut String) {
        let Step {
            name,
            place,
            rules,
            notes,
            objects,
            object_count,
            snapshot_age_seconds,
            missing,
            upstream,
        } = self;
        let _ = writeln!(text, "{name}\n{INDENT}place  {place}");
        for rule in rules {
            write_rule(text, rule);
        }
        for note in notes {
            let _ = writeln!(text, "{INDENT}note   {note}");
        }
        for object in objects {
            let _ = writeln!(text, "{INDENT}object {}", object.text());
        }
        if *object_count > objects.len() {
            let more = object_count - objects.len();
            let _ = writeln!(text, "{INDENT}object and {more} more");
        }
        if let Some(age) = snapshot_age_seconds {
            let _ = writeln!(
                text,
                "{INDENT}data   from a snapshot that was confirmed {age} s ago (E42)"
            );
        }
        if !missing.is_empty() {
            let _ =
                writeln!(text, "{INDENT}data   no complete list yet of: {}", missing.join(", "));
        }
        if let Some(upstream) = upstream {
            upstream.write(text);
        }
    }
}

impl Object {
    /// Kind, namespace and name, uid and version, on one line.
    pub fn text(&self) -> String {
        let Object { kind, namespace, name, service, uid, version, state } = self;
        let name = match (namespace.as_str(), name) {
            ("", Some(name)) => name.clone(),
            (namespace, Some(name)) => format!("{namespace}/{name}"),
            (namespace, None) => format!("of {namespace}"),
        };
        let mut text = format!("{kind} {name}");
        if let Some(service) = service {
            let _ = write!(text, " (of Service {service})");
        }
        let _ = match *state {
            "held" => write!(
                text,
                ", uid {}, version {}",
                uid.as_deref().unwrap_or("-"),
                version.map_or("-".to_owned(), |version| version.to_string())
            ),
            "gone" => write!(text, ", changed since these records were published: ask again"),
            _ => write!(text, ", uid and version not known: the source was busy"),
        };
        text
    }
}

impl Upstream {
    fn write(&self, text: &mut String) {
        let Upstream { cache, age_seconds, lifetime_seconds, server, leads_to, group } = self;
        let _ = writeln!(text, "{INDENT}cache  {cache}");
        if let (Some(age_s), Some(lifetime_s)) = (age_seconds, lifetime_seconds)
            && *lifetime_s > 0
        {
            let _ = writeln!(text, "{INDENT}age    {age_s} s of {lifetime_s} s");
        }
        if let Some(Giver { server, transport, server_name }) = server {
            let server = full_name(server, transport, server_name);
            let _ = writeln!(text, "{INDENT}server {server} gave this reply");
        }
        if let Some(target) = leads_to {
            let _ = writeln!(
                text,
                "{INDENT}note   it leads to {target}, which is looked up by itself (FW42)"
            );
        }
        match group {
            Some(group) => {
                for line in group.text().lines() {
                    let _ = writeln!(text, "{INDENT}group  {line}");
                }
            }
            None => {
                let _ = writeln!(text, "{INDENT}group  no server is configured (N16)");
            }
        }
    }
}

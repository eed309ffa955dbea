//! What `explain` prints for a terminal.

use std::fmt::Write;

use super::super::pages::{Answer, Giver, Object, Upstream};
use super::super::search::Outcome;
use super::{Asked, Explained};

impl Explained {
    pub fn text(&self) -> String {
        let Explained { name, from, libc, resolv_conf, asked_of, notes, questions, result: _ } =
            self;
        // Writing to a String cannot fail.
        let mut text = name.clone();
        if let (Some(from), Some(libc)) = (from, libc) {
            let _ = write!(text, ", as {from} asks it by the rules of {libc}");
        }
        text.push('\n');
        if let Some(conf) = resolv_conf {
            let _ = writeln!(text, "resolver  {}", conf.text());
        }
        let _ = writeln!(text, "asked of  {asked_of}");
        for note in notes {
            let _ = writeln!(text, "note      {note}");
        }
        let last = questions.last().map(|asked| asked.name.as_str());
        for (place, asked) in questions.iter().enumerate() {
            let _ = write!(text, "\n{}. ", place + 1);
            asked.write(&mut text, Some(asked.name.as_str()) != last);
        }
        let _ = writeln!(text, "\n{}", self.verdict());
        text
    }

    /// The outcome, and the number of questions.
    fn verdict(&self) -> String {
        let mut names: Vec<&str> = self.questions.iter().map(|asked| asked.name.as_str()).collect();
        names.dedup();
        let cost = format!(
            "{} and {}",
            counted(self.questions.len(), "question"),
            counted(names.len(), "name")
        );
        let outcome = match self.result {
            Outcome::Found => "found",
            Outcome::NoData => "not found: the name has no such records",
            Outcome::NxDomain => "not found: no such name",
            // It takes such a reply for none, and waits for a better one.
            Outcome::ServFail | Outcome::Failed if self.libc == Some("musl") => {
                "failed when the timeout of musl ended (by default 5 s)"
            }
            Outcome::ServFail | Outcome::Failed => "failed",
            Outcome::Unknown => "not known: an upstream decides",
        };
        match (self.result, names.last()) {
            (Outcome::Found, Some(last)) => format!("{outcome} as {last} after {cost}"),
            _ => format!("{outcome}, after {cost}"),
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Asked {
    fn write(&self, text: &mut String, continues: bool) {
        let Asked { name, qtype, outcome, explanation: _, answer } = self;
        let status = match (outcome, &answer.status) {
            (Outcome::Unknown, _) if continues => {
                "an upstream is asked; taken as NXDOMAIN here, so that the search continues"
                    .to_owned()
            }
            (Outcome::Unknown, _) => "an upstream is asked".to_owned(),
            (Outcome::NoData, Some(status)) => format!("{status}, no records of the type"),
            (_, Some(status)) => status.clone(),
            (_, None) => "no reply".to_owned(),
        };
        let _ = writeln!(text, "{name} {qtype}: {status}");
        for record in &answer.answer {
            let _ = writeln!(text, "   {record}");
        }
        answer.write_why(text);
    }
}

impl Answer {
    fn write_why(&self, text: &mut String) {
        let Answer { qtype: _, revision: _, reason, origin, rule, steps, status: _, answer: _ } =
            self;
        let _ = writeln!(text, "   why     {reason}, from: {origin}");
        for step in steps {
            let _ = writeln!(text, "   name    {} ({})", step.name, step.place);
            for rule in &step.rules {
                let _ = writeln!(text, "   rule    {}: {}", rule.id, rule.words);
            }
            for note in &step.notes {
                let _ = writeln!(text, "   note    {note}");
            }
            for object in &step.objects {
                let _ = writeln!(text, "   object  {}", object.text());
            }
            if let Some(upstream) = &step.upstream {
                upstream.write(text);
            }
        }
        if let Some(rule) = rule {
            let _ = writeln!(text, "   rule    {}: {}", rule.id, rule.words);
        }
    }
}

impl Upstream {
    fn write(&self, text: &mut String) {
        let Upstream { cache, age_seconds, lifetime_seconds, server } = self;
        let _ = writeln!(text, "   cache   {cache}");
        // A failure that is remembered has no lifetime.
        if let (Some(age_s), Some(lifetime_s @ 1..)) = (age_seconds, lifetime_seconds) {
            let _ = writeln!(text, "   age     {age_s} s of {lifetime_s} s");
        }
        if let Some(Giver { server, transport, server_name }) = server {
            let name = if server_name.is_empty() { "" } else { " " };
            let _ = writeln!(
                text,
                "   server  {server} {transport}{name}{server_name} gave this reply"
            );
        }
    }
}

impl Object {
    fn text(&self) -> String {
        let Object { kind, namespace, name, service, uid } = self;
        let name = match (namespace.as_str(), name) {
            ("", Some(name)) => name.clone(),
            (namespace, Some(name)) => format!("{namespace}/{name}"),
            (namespace, None) => format!("of {namespace}"),
        };
        let service = service.as_ref().map_or(String::new(), |it| format!(" (of Service {it})"));
        let uid = uid.as_ref().map_or(String::new(), |it| format!(", uid {it}"));
        format!("{kind} {name}{service}{uid}")
    }
}

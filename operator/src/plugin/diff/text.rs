//! What `diff` prints for a terminal.

use std::fmt::Write;

use super::super::table::{table, with_heading};
use super::{Changes, NameChange, SettingChange};

/// Names that are shown; `-o json` has all.
const MAX_NAMES: usize = 100;

impl Changes {
    /// Lines for a terminal.
    pub fn text(&self) -> String {
        let Changes { cluster_dns, against, revisions: (before, after), settings, names, notes } =
            self;
        if self.is_none() {
            return format!("ClusterDNS {cluster_dns}: nothing would change beside {against}\n");
        }
        // Writing to a String cannot fail.
        let mut text = format!("ClusterDNS {cluster_dns}, beside {against}\n");
        let revision = match before == after {
            true => format!("{before}, unchanged"),
            false => format!("{before} -> {after}"),
        };
        let _ = writeln!(text, "revision   {revision}");
        for note in notes {
            let _ = writeln!(text, "note       {note}");
        }
        if !settings.is_empty() {
            text.push_str("\nsettings\n");
        }
        for SettingChange { field, before, after, is_immutable: _ } in settings {
            let _ = writeln!(text, "  {field}");
            for (sign, value) in [('-', before), ('+', after)] {
                if let Some(value) = value {
                    let _ = writeln!(text, "    {sign} {value}");
                }
            }
        }
        if names.is_empty() {
            return text;
        }
        text.push('\n');
        let has_today = names.iter().any(|it| it.today.is_some());
        let row = |change: &NameChange| {
            let NameChange { name, qtype, before, after, asked: _, today } = change;
            let or_not = |text: &Option<String>| text.clone().unwrap_or("not written".to_owned());
            let name = format!("{name} {qtype}");
            let mut row = vec![name.trim_end().to_owned(), or_not(before), or_not(after)];
            if has_today {
                row.push(today.clone().unwrap_or("-".to_owned()));
            }
            row
        };
        let mut heading = vec!["NAME", "BEFORE", "AFTER"];
        if has_today {
            heading.push("ANSWERED TODAY");
        }
        text.push_str(&table(&with_heading(&heading, names.iter().take(MAX_NAMES).map(row))));
        let more = names.len().saturating_sub(MAX_NAMES);
        if more > 0 {
            let _ = writeln!(text, "and {more} more: -o json has all");
        }
        text
    }
}

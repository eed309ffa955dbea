//! What could be written next on a command line, for shells: kubectl asks `kubectl_complete-clusterdns`, which asks
//! `kubectl-clusterdns __complete` with the words so far. Printed as kubectl expects it: a value, a tab and what it is for,
//! line by line, and at the end `:4` (no files) or `:0` (files).

mod live;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::args::{Args, Shell};
pub(super) use live::Live;

/// The hidden subcommand that shells call.
pub(super) const WORD: &str = "__complete";
/// Values that are offered: a shell shows no more.
const MAX_VALUES: usize = 500;
/// Types that people ask for; others can be written too.
const TYPES: [&str; 14] = [
    "A", "AAAA", "CAA", "CNAME", "DNAME", "HTTPS", "MX", "NAPTR", "NS", "PTR", "SOA", "SRV",
    "SVCB", "TXT",
];

/// The script for a shell; each script calls [`completed`], so that there is one list of words.
pub(super) fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Kubectl => include_str!("completion/kubectl_complete-clusterdns"),
        Shell::Bash => include_str!("completion/bash"),
        Shell::Zsh => include_str!("completion/zsh"),
        Shell::Fish => include_str!("completion/fish"),
    }
}

/// The values that the last word may have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// Words and what they are for.
    Words(Vec<(String, String)>),
    /// What the kubeconfig or the cluster knows.
    Live(Live),
    Files,
    Nothing,
}

/// The answer to a shell: `words` are those behind the name of the program, the last one unfinished.
pub(super) async fn completed(words: &[String]) -> String {
    // bash splits `--from=x` at the sign.
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "=").collect();
    let (wanted, last) = wanted(&words);
    let found = match wanted {
        Wanted::Files => return ":0\n".to_owned(),
        Wanted::Nothing => Vec::new(),
        Wanted::Words(found) => found,
        Wanted::Live(live) => live::values(live, &words).await,
    };
    let found = found.into_iter().filter(|(value, _)| value.starts_with(last));
    let line = |(value, help): (String, String)| match help.is_empty() {
        true => format!("{value}\n"),
        false => format!("{value}\t{help}\n"),
    };
    found.take(MAX_VALUES).map(line).collect::<String>() + ":4\n"
}

/// The values that may be there, and the part of the word that is written.
fn wanted<'a>(words: &[&'a str]) -> (Wanted, &'a str) {
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (*last, before));
    let mut root = Args::command();
    root.build();
    let mut command = &root;
    let mut places = 0;
    let mut open = None;
    for word in before {
        if open.take().is_some() {
            continue;
        }
        match flag(command, word) {
            Some(found) => {
                open = takes_value(found).then_some(found).filter(|_| !word.contains('='))
            }
            None if word.starts_with('-') => {}
            None => match command.find_subcommand(word) {
                Some(found) => command = found,
                None => places += 1,
            },
        }
    }
    if let Some(argument) = open {
        return (values(argument), last);
    }
    if let Some((name, written)) = last.split_once('=')
        && let Some(argument) = flag(command, name)
    {
        return (values(argument), written);
    }
    if last.starts_with('-') {
        return (Wanted::Words(flags(command)), last);
    }
    if command.has_subcommands() {
        return (Wanted::Words(subcommands(command)), last);
    }
    let place = command.get_positionals().nth(places);
    (place.map_or(Wanted::Nothing, values), last)
}

fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or(word);
    let is_it = |argument: &&Arg| match name.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => {
            let letter = name.strip_prefix('-').and_then(|rest| rest.chars().next());
            letter.is_some() && argument.get_short() == letter
        }
    };
    command.get_arguments().find(is_it)
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

fn help(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn flags(command: &Command) -> Vec<(String, String)> {
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    shown
        .filter_map(|argument| {
            Some((format!("--{}", argument.get_long()?), help(argument.get_help())))
        })
        .collect()
}

fn subcommands(command: &Command) -> Vec<(String, String)> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| (command.get_name().to_owned(), help(command.get_about()))).collect()
}

/// What an argument may be.
fn values(argument: &Arg) -> Wanted {
    let listed = argument.get_possible_values();
    if !listed.is_empty() {
        let value =
            |it: &clap::builder::PossibleValue| (it.get_name().to_owned(), help(it.get_help()));
        return Wanted::Words(listed.iter().map(value).collect());
    }
    match argument.get_id().as_str() {
        "kubeconfig" | "resolv_conf" | "file" | "against" => Wanted::Files,
        "context" => Wanted::Live(Live::Contexts),
        "cluster" => Wanted::Live(Live::Clusters),
        "user" => Wanted::Live(Live::Users),
        "namespace" => Wanted::Live(Live::Namespaces),
        "from" => Wanted::Live(Live::Pods),
        "clusterdns" => Wanted::Live(Live::ClusterDns),
        "pod" => Wanted::Live(Live::DataPlanes),
        "qtype" => {
            Wanted::Words(TYPES.iter().map(|it| ((*it).to_owned(), String::new())).collect())
        }
        _ => Wanted::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let text = futures::executor::block_on(completed(&words));
        text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn every_type_that_a_record_of_the_resource_may_have_is_offered() {
        let crd = serde_json::to_value(crds::v1alpha1::crd()).unwrap();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let types = crd.pointer(&format!("{spec}/records/items/properties/type/enum")).unwrap();
        for rtype in types.as_array().unwrap() {
            assert!(TYPES.contains(&rtype.as_str().unwrap()), "{rtype}");
        }
    }

    #[test]
    fn subcommands_flags_and_values_are_offered_by_what_is_written() {
        for (line, expected) in [
            ("sta", &["status", ":4"][..]),
            ("explain cart SR", &["SRV", ":4"]),
            ("explain cart --lib", &["--libc", ":4"]),
            ("explain cart --libc m", &["musl", ":4"]),
            ("explain cart --libc=m", &["musl", ":4"]),
            ("explain cart --libc = g", &["glibc", ":4"]),
            ("--context x explain cart -o j", &["json", ":4"]),
            ("explain ", &[":4"]),
            ("explain cart --resolv-conf ", &[":0"]),
            ("status --kubeconfig=/h", &[":0"]),
            ("completion ba", &["bash", ":4"]),
            ("top c", &["clients", ":4"]),
            ("diff -f ", &[":0"]),
            ("unknown more", &[":4"]),
        ] {
            assert_eq!(offered(line), expected, "{line}");
        }
        assert!(offered("").contains(&"explain".to_owned()));
        assert!(!offered("_").contains(&WORD.to_owned()), "hidden");
        assert!(offered("status --").contains(&"--context".to_owned()));
    }

    #[test]
    fn names_of_the_cluster_are_offered_where_they_belong() {
        for (line, live) in [
            (&["explain", "cart", "--from", "sh"][..], Live::Pods),
            (&["status", "-n", ""], Live::Namespaces),
            (&["--clusterdns", ""], Live::ClusterDns),
            (&["status", "--pod", ""], Live::DataPlanes),
            (&["--context=p"], Live::Contexts),
        ] {
            assert_eq!(wanted(line).0, Wanted::Live(live), "{line:?}");
        }
    }
}

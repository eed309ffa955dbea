//! The directives that are checked, one row each.

use super::Again::{NotRead, Read, Refused};
use super::Takes::{All, Nothing};
use super::words::{
    any, any_duration, boolean, certificate, classes, host_port, interval, line, monitor, natural,
    number, octets, on_or_off, positive_duration, rate, stdout,
};
use super::{Braces, Line, Row, special_rules};

/// Any number of words.
const MANY: usize = usize::MAX;

/// All of them, by name.
pub(in crate::import::corefile) const ROWS: &[Row] = &[
    row("acl", 0..=MANY, any, Braces::Own(special_rules::acl), Read),
    row("any", 0..=0, any, Braces::Refused, NotRead),
    row("autopath", 1..=MANY, any, Braces::Refused, Read),
    row("bind", 1..=MANY, any, Braces::Options(BIND), Read),
    row("bufsize", 0..=1, octets, Braces::NotRead, NotRead),
    row("cancel", 0..=1, positive_duration, Braces::NotRead, Read),
    row("chaos", 0..=MANY, any, Braces::Empty, NotRead),
    row("debug", 0..=0, any, Braces::Refused, Read),
    row("dns64", 0..=1, special_rules::prefix, Braces::Own(special_rules::dns64), Read),
    row("dnstap", 1..=MANY, special_rules::reader, Braces::Own(special_rules::dnstap), Read),
    row("errors", 0..=1, stdout, Braces::Options(ERRORS), Refused),
    row("health", 0..=1, host_port, Braces::Options(HEALTH), Read),
    row("loadbalance", 0..=2, special_rules::policy, Braces::Own(special_rules::loadbalance), Read),
    row("local", 0..=0, any, Braces::Options(LOCAL), Read),
    row("log", 0..=MANY, any, Braces::Options(LOG), Read),
    row("loop", 0..=0, any, Braces::Refused, Refused),
    row("metadata", 0..=MANY, any, Braces::Empty, Refused),
    row("minimal", 0..=0, any, Braces::Refused, NotRead),
    row("nsid", 0..=MANY, any, Braces::Refused, Refused),
    row("pprof", 0..=1, host_port, Braces::Options(PPROF), Refused),
    row("prometheus", 0..=1, host_port, Braces::Options(PROMETHEUS), Refused),
    row("ready", 0..=1, host_port, Braces::Options(READY), Refused),
    row("reload", 0..=2, interval, Braces::NotRead, NotRead),
    row("root", 1..=1, any, Braces::Refused, Read),
    row("tls", 0..=3, certificate, Braces::Own(special_rules::tls), Read),
    row("trace", 0..=2, special_rules::tracer, Braces::Options(TRACE), Read),
    row("whoami", 0..=0, any, Braces::Refused, NotRead),
];

const fn row(
    name: &'static str,
    words: std::ops::RangeInclusive<usize>,
    check: super::Check,
    braces: Braces,
    again: super::Again,
) -> Row {
    Row { name, words, check, braces, again }
}

const BIND: &[Line] = &[line("except", All(1..=MANY), any)];
const ERRORS: &[Line] = &[
    line("stacktrace", Nothing, any),
    line("consolidate", All(2..=4), special_rules::consolidate),
];
const HEALTH: &[Line] = &[line("lameduck", All(1..=1), any_duration)];
const LOCAL: &[Line] = &[line("localhost_prefix", All(1..=1), on_or_off)];
const LOG: &[Line] = &[line("class", All(1..=MANY), classes)];
const PPROF: &[Line] = &[line("block", All(0..=1), number)];
const PROMETHEUS: &[Line] =
    &[line("runtime_metrics", All(0..=0), any), line("tls", All(1..=1), any)];
const READY: &[Line] = &[line("monitor", All(1..=1), monitor)];
const TRACE: &[Line] = &[
    line("every", All(1..=1), natural),
    line("service", All(1..=1), any),
    line("client_server", All(0..=1), boolean),
    line("datadog_analytics_rate", All(0..=1), rate),
    line("zipkin_max_backlog_size", All(1..=1), number),
    line("zipkin_max_batch_size", All(1..=1), number),
    line("zipkin_max_batch_interval", All(1..=1), any_duration),
];

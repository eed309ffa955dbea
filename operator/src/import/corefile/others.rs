//! Directives with nothing to convert: each has one decided line. What this program does not know is named too.

use super::parse::Directive;
use super::scope::Scope;
use crate::import::report::Outcome::{self, Changed, NotNeeded, NotPossible};

/// The same words for every server that holds zones of its own.
const OWN_ZONES: &str = "zones of other kinds are not served: keep a server for this zone and name it in spec.stubDomains, \
                         or write its names as spec.hosts and spec.records";

/// Reports it and the lines of its body.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) {
    let (outcome, message) = decided(&directive.name, directive.args.first().map(String::as_str));
    scope.say(directive, outcome, message);
    body(directive, &directive.body, outcome, scope);
}

/// Lines between braces, those inside of more braces too: the parser bounds how deep they are.
fn body(directive: &Directive, lines: &[Directive], outcome: Outcome, scope: &mut Scope<'_>) {
    for line in lines {
        if let ("loadbalance", "prefer") = (directive.name.as_str(), line.name.as_str()) {
            let message = "addresses of an answer begin at a random one; none is preferred";
            scope.say_of(directive, line, NotPossible, message);
            continue;
        }
        scope.say_of(directive, line, outcome, format!("as {} above", directive.name));
        body(directive, &line.body, outcome, scope);
    }
}

fn decided(name: &str, first: Option<&str>) -> (Outcome, &'static str) {
    match name {
        "ready" => (NotNeeded, "the pods have /readyz on port 9153, and kubelets ask it"),
        "reload" => (
            NotNeeded,
            "a changed ClusterDNS reaches one pod within seconds, and the others after its trial (spec.rollout, 30 s by default)",
        ),
        "loop" => (
            NotNeeded,
            "upstreams that lead back here are found, reported and not asked; the process continues",
        ),
        "loadbalance" => match first {
            None | Some("round_robin") => {
                (NotNeeded, "addresses of an answer begin at a random one")
            }
            Some(_) => {
                (NotPossible, "addresses of an answer begin at a random one; there are no weights")
            }
        },
        "minimal" => (NotNeeded, "replies have no authority records besides the SOA of denials"),
        "any" => (NotNeeded, "ANY is answered with one HINFO record (RFC 8482)"),
        "local" => (NotNeeded, "localhost and its reverse names are answered locally"),
        "metadata" | "debug" | "pprof" | "root" | "timeouts" | "multisocket" | "cancel"
        | "quic" | "header" | "trace" => settings_of_process(name),
        "tls" => (
            NotPossible,
            "make the certificate a Secret of type kubernetes.io/tls and name that in spec.listeners",
        ),
        "autopath" => (
            NotPossible,
            "a name has one meaning for every client: set options ndots: 2 in dnsConfig of pods, or write names with a dot at \
             their end, to save the questions of search paths",
        ),
        "dns64" => (
            NotPossible,
            "addresses are not synthesised: name servers that do DNS64 in spec.upstreams",
        ),
        "view" => (
            NotPossible,
            "all clients see the same names: write a second ClusterDNS with a Service of its own for the other clients",
        ),
        "nodes" | "k8s_nodes" => {
            (NotPossible, "nodes have no names here: write them as spec.hosts")
        }
        "k8s_external" | "k8s_gateway" => (
            NotPossible,
            "external names of Services are not served: write them as spec.hosts, or keep that server and name it in \
             spec.stubDomains",
        ),
        "kubernetai" => (
            NotPossible,
            "one ClusterDNS serves one cluster: forward to the DNS server of the other one (spec.stubDomains)",
        ),
        "file" | "auto" | "secondary" | "etcd" | "route53" | "azure" | "clouddns" | "nomad"
        | "records" | "sign" => (NotPossible, OWN_ZONES),
        "dnssec" => {
            (NotPossible, "our answers are not signed; signed answers of upstreams are passed on")
        }
        "transfer" => (NotPossible, "zone transfers are refused"),
        "tsig" => (
            NotPossible,
            "signatures of transactions are not checked: use spec.listeners.tls and NetworkPolicies",
        ),
        "grpc" => (
            NotPossible,
            "gRPC is not spoken: ask these servers over TLS or TCP, in spec.upstreams or spec.stubDomains",
        ),
        "fanout" => (
            NotPossible,
            "servers are asked one after the other: write them in spec.upstreams with policy: Fastest",
        ),
        "alternate" => (
            NotPossible,
            "the servers of alternate are not asked: the next server of a list is asked after SERVFAIL, REFUSED and silence, \
             so write them in spec.upstreams if these replies are meant",
        ),
        "ocp_dnsnameresolver" => (
            NotPossible,
            "it watches names for the firewall of OpenShift: keep OpenShift's server for it",
        ),
        "whoami" | "erratic" => (NotPossible, "it is for tests of CoreDNS"),
        "geoip" => (NotPossible, "answers do not depend on where clients are"),
        "startup" | "shutdown" | "on" => (NotPossible, "pods run no other programs"),
        "deprecated" => (NotNeeded, "nothing is done by it"),
        _ => (
            NotPossible,
            "this program does not know this directive: find out what it does in your build of CoreDNS, and whether a field of \
             the ClusterDNS does that",
        ),
    }
}

fn settings_of_process(name: &str) -> (Outcome, &'static str) {
    match name {
        "debug" => (Changed, "spec.logging.level: Debug writes details"),
        "trace" => (NotPossible, "queries are not traced: use spec.logging.dnstap"),
        "header" => (NotPossible, "flags of replies follow from what was answered"),
        "root" => (NotNeeded, "no files are read"),
        _ => {
            (NotNeeded, "a setting of the process of CoreDNS: here it is chosen, or in spec.limits")
        }
    }
}

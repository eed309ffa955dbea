//! Requests and limits that are legal and unwise.

use std::collections::BTreeMap;

use crds::ClusterDNS;
use crds::check::{in_mebibytes, quantity};
use crds::defaults::{CACHE_BYTES, IN_FLIGHT, TCP_BUFFER_BYTES};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::warning::{Warning, warning};

/// The memory limit of a pod whose resources are not written.
const MEMORY_LIMIT: u64 = 256 << 20;
/// What a pod needs besides its cache and the buffers of connections: records of a cluster of some size.
const BESIDE: u64 = 64 << 20;
/// What a query in progress takes at most, while it waits for the next part of a long chain.
const PLACE: u64 = 32 << 10;
/// Octets of storage with which no pod stays.
const LEAST_STORAGE: f64 = (1 << 20) as f64;

/// The kernel ends a process that takes more than its limit: where the parts that people size are larger, it will.
pub(super) fn sized_memory(dns: &ClusterDNS) -> Option<Warning> {
    let cache = dns.spec.cache.clone().unwrap_or_default().memory.bytes()?;
    let limits = dns.spec.limits.clone().unwrap_or_default();
    let buffers = limits.tcp_buffers.bytes()?;
    let written = dns.spec.resources.as_ref().map(|resources| resources.limits.clone());
    let limit = match written {
        None => MEMORY_LIMIT,
        Some(limits) => amount(limits.as_ref(), "memory")? as u64,
    };
    // The default number takes that much only while clients and upstreams try to fill it: `BESIDE` does not count it.
    let places = u64::from(limits.in_flight.saturating_sub(IN_FLIGHT)) * PLACE;
    let needed = cache.saturating_add(buffers).saturating_add(places).saturating_add(BESIDE);
    // The one that people made largest.
    let grown = [
        (cache.saturating_sub(CACHE_BYTES), "spec.cache.memory"),
        (buffers.saturating_sub(TCP_BUFFER_BYTES), "spec.limits.tcpBuffers"),
        (places, "spec.limits.inFlight"),
    ];
    let (_, field) = grown.into_iter().rev().max_by_key(|(octets, _)| *octets)?;
    let queries = match places {
        0 => String::new(),
        _ => format!(
            ", queries in progress above {IN_FLIGHT} (spec.limits.inFlight) {} MiB",
            places.div_ceil(1 << 20)
        ),
    };
    (limit < needed).then(|| {
        let message = format!(
            "a pod may take {} MiB: of these the cache (spec.cache.memory) may take {} MiB, the buffers of connections \
             (spec.limits.tcpBuffers) {} MiB{queries}, and the rest needs {} MiB: write a limit of at least {} MiB, or make one of \
             these smaller",
            limit >> 20,
            cache >> 20,
            buffers >> 20,
            BESIDE >> 20,
            needed.div_ceil(1 << 20)
        );
        warning(field, "MemoryLimitTooSmall", message)
    })
}

/// How much is written; 0 is as if it was not.
fn amount(quantities: Option<&BTreeMap<String, Quantity>>, resource: &str) -> Option<f64> {
    quantity(&quantities?.get(resource)?.0).filter(|amount| *amount > 0.0)
}

pub(super) fn memory_limit(dns: &ClusterDNS) -> Option<Warning> {
    let resources = dns.spec.resources.as_ref()?;
    let has = |resource: &str| amount(resources.limits.as_ref(), resource).is_some();
    if has("cpu") {
        let message = "a pod at its CPU limit answers nothing for up to 100 ms at a time: leave it out, and raise the request";
        return Some(warning("spec.resources.limits.cpu", "CPULimit", message));
    }
    (!has("memory")).then(|| {
        let message = "a pod may take all memory of its node: write a limit, such as 256Mi";
        warning("spec.resources.limits", "NoMemoryLimit", message)
    })
}

/// Kubernetes takes `64m` for one octet: pods run, on nodes that have no room for them.
pub(super) fn requests_of_nothing(dns: &ClusterDNS) -> Vec<Warning> {
    let requests = dns.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let warn = |resource: &str| {
        amount(requests, resource).filter(|octets| *octets < 1.0)?;
        let written = &requests?.get(resource)?.0;
        let message = format!(
            "{written} is less than one octet, so the scheduler keeps no {resource} for a pod: did you mean {}",
            in_mebibytes(written)
        );
        Some(warning(format!("spec.resources.requests.{resource}"), "RequestTooSmall", message))
    };
    ["memory", "ephemeral-storage"].into_iter().filter_map(warn).collect()
}

/// The kubelet evicts pods above this limit, which is why a pod needs room for its logs; 0 is a limit too. It spares pods of the
/// classes for critical pods, of which ours are by default.
pub(super) fn storage_limit(dns: &ClusterDNS) -> Option<Warning> {
    let limits = dns.spec.resources.as_ref()?.limits.as_ref()?;
    let written = &limits.get("ephemeral-storage")?.0;
    quantity(written).filter(|octets| *octets < LEAST_STORAGE)?;
    let message = format!(
        "with {written} a pod is evicted as soon as it writes a log, unless its class is for critical pods: did you mean {}",
        in_mebibytes(written)
    );
    Some(warning("spec.resources.limits.ephemeral-storage", "StorageLimitTooSmall", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields and messages of this reason, of a spec.
    fn of_reason(reason: &str, spec: &str) -> Vec<(String, String)> {
        let dns = crate::fixtures::dns(spec);
        let warnings = memory_limit(&dns).into_iter().chain(sized_memory(&dns));
        let warnings = warnings.chain(requests_of_nothing(&dns)).chain(storage_limit(&dns));
        let it = warnings.filter(|it| it.reason == reason);
        it.map(|it| (it.field, it.message)).collect()
    }

    #[test]
    fn o18_a_limit_of_storage_that_evicts_pods_at_once_is_said() {
        for (limit, is_said) in
            [("0", true), ("512m", true), ("1k", true), ("1Mi", false), ("1Gi", false)]
        {
            let spec = format!("{{resources: {{limits: {{ephemeral-storage: {limit}}}}}}}");
            let said = of_reason("StorageLimitTooSmall", &spec);
            assert_eq!(said.len(), usize::from(is_said), "{limit}");
        }
    }

    #[test]
    fn o18_a_memory_limit_below_what_the_sized_parts_may_take_is_said() {
        let fields = |spec: &str| {
            let found = of_reason("MemoryLimitTooSmall", spec).into_iter();
            found.map(|(field, _)| field).collect::<Vec<_>>()
        };
        let (cache, buffers) = ("spec.cache.memory", "spec.limits.tcpBuffers");
        let limited = |spec: &str, limit: &str| {
            fields(&format!("{{{spec}, resources: {{limits: {{memory: {limit}}}}}}}"))
        };
        assert_eq!(fields("{}"), [""; 0]);
        assert_eq!(fields("{limits: {tcpBuffers: 1Gi}}"), [buffers]);
        assert_eq!(fields("{cache: {memory: 128Mi}, limits: {tcpBuffers: 128Mi}}"), [cache]);
        assert_eq!(fields("{cache: {memory: 96Mi}, limits: {tcpBuffers: 96Mi}}"), [""; 0]);
        let queries = "spec.limits.inFlight";
        assert_eq!(fields("{limits: {inFlight: 65536}}"), [queries]);
        assert_eq!(fields("{limits: {inFlight: 65536}, cache: {memory: 1Gi}}"), [queries]);
        assert_eq!(fields("{limits: {inFlight: 8192}, cache: {memory: 256Mi}}"), [cache]);
        assert_eq!(limited("limits: {inFlight: 65536}", "2031Mi"), [queries]);
        assert_eq!(limited("limits: {inFlight: 65536}", "2032Mi"), [""; 0]);
        assert_eq!(
            fields("{limits: {inFlight: 8704}}"),
            [""; 0],
            "as much as the default has room for"
        );
        let large = "cache: {memory: 1400Mi}";
        for (limit, expected) in
            [("1.5Gi", 0), ("1.4Gi", 1), ("2e9", 0), ("1e9", 1), ("0.1Gi", 1), ("128e6", 1)]
        {
            assert_eq!(limited(large, limit).len(), expected, "{limit}");
        }
        let [(_, message)] = &of_reason("MemoryLimitTooSmall", "{limits: {tcpBuffers: 1Gi}}")[..]
        else {
            panic!("one")
        };
        let parts = ["(spec.cache.memory) may take 16 MiB", "(spec.limits.tcpBuffers) 1024 MiB"];
        assert!(parts.iter().all(|it| message.contains(it)), "{message}");
        assert!(message.contains("a limit of at least 1104 MiB"), "{message}");
    }

    #[test]
    fn o18_a_limit_of_0_is_none() {
        let count = |reason: &str, resource: &str| {
            of_reason(reason, &format!("{{resources: {{limits: {{{resource}: 0}}}}}}")).len()
        };
        assert_eq!(
            [count("NoMemoryLimit", "memory"), count("MemoryLimitTooSmall", "memory")],
            [1, 0]
        );
        assert_eq!([count("NoMemoryLimit", "cpu"), count("CPULimit", "cpu")], [1, 0]);
    }

    #[test]
    fn o18_a_request_of_less_than_one_octet_is_said() {
        let of = |spec: &str| {
            of_reason("RequestTooSmall", &format!("{{resources: {{requests: {spec}}}}}"))
        };
        assert_eq!(of("{memory: 64Mi, cpu: 50m}"), []);
        let [(field, message)] = &of("{memory: 64m}")[..] else { panic!("one") };
        assert_eq!(field, "spec.resources.requests.memory");
        assert!(message.ends_with("did you mean 64Mi"), "{message}");
    }
}

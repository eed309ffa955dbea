//! What a web page in a browser may not read. A page can bind its own name to loopback after it was loaded (DNS rebinding),
//! and then ask a port that a person has forwarded: the browser takes the answer for one of the page's own server.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};

/// What such a request reads.
pub(super) const REBOUND: &str =
    "this came by loopback, and asks for another host: ask 127.0.0.1 or localhost by that name\n";

/// What probes ask, in both planes and at the ports of kube-dns: they say nothing that a page gains from. `/look` of another
/// pod and probes of a pod may name any host.
const PROBES: [&str; 3] = ["/livez", "/readyz", "/readiness"];
const PROBES_BELOW: &str = "/healthcheck/";

/// Did this request come by loopback for another host, and for more than a probe? Others come from elsewhere, and may use any
/// name of ours.
pub(super) fn is_rebound(client: IpAddr, path: &str, headers: &HeaderMap) -> bool {
    let is_probe = PROBES.contains(&path) || path.starts_with(PROBES_BELOW);
    client.is_loopback() && !is_probe && !names_loopback(headers)
}

/// Does the request name loopback as its host, or nothing? A rebound page sends its own name.
fn names_loopback(headers: &HeaderMap) -> bool {
    let is_local = |host: &str| {
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let host = headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default());
    let name = host.map(|host| {
        let port = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let name = port.map_or(host, |(name, _)| name);
        name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name)
    });
    name.is_none_or(is_local)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn asked(client: &str, host: Option<&'static str>, path: &str) -> bool {
        let mut headers = HeaderMap::new();
        host.map(|host| headers.insert(header::HOST, HeaderValue::from_static(host)));
        is_rebound(client.parse().unwrap(), path, &headers)
    }

    #[test]
    fn n41_a_web_page_that_bound_its_name_to_loopback_reads_nothing_but_probes() {
        for host in ["rebound.example", "rebound.example:9153", "10.0.0.1", "localhost.example", ""]
        {
            for path in ["/", "/config", "/metrics", "/upstreams", "/cache", "/healthcheck", "/top"]
            {
                assert!(asked("127.0.0.1", Some(host), path), "{host} {path}");
                assert!(asked("::1", Some(host), path), "{host} {path}");
                assert!(!asked("10.0.0.7", Some(host), path), "{host} {path}");
            }
            for path in ["/livez", "/readyz", "/readiness", "/healthcheck/dnsmasq"] {
                assert!(!asked("127.0.0.1", Some(host), path), "{host} {path}");
            }
        }
        for host in ["localhost", "localhost:9153", "127.0.0.1:9153", "127.0.0.1", "[::1]:9153"] {
            assert!(!asked("127.0.0.1", Some(host), "/config"), "{host}");
        }
        assert!(!asked("::1", None, "/config"), "HTTP/1.0");
    }
}

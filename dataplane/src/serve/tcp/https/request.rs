//! What an HTTP request asks for (RFC 8484 §4.1), and the response where it is not a DNS query (RFC 9110 §15.5).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use super::super::MESSAGE_OCTETS;
use super::HEADER_OCTETS;

pub(super) const DNS_MESSAGE: &str = "application/dns-message";

/// Where the DNS message of a request is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// In the parameter `dns`, decoded.
    Message(Vec<u8>),
    /// In the body, of at most this many octets.
    Body(usize),
}

/// Reads everything but the body.
///
/// # Errors
/// The status that says what is wrong.
pub(super) fn read(request: &Parts, path: &str) -> Result<Asked, StatusCode> {
    if header_octets(request) > HEADER_OCTETS {
        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    if request.uri.path() != path {
        return Err(StatusCode::NOT_FOUND);
    }
    match request.method {
        Method::GET => {
            let parameters = request.uri.query().unwrap_or_default().split('&');
            let mut messages = parameters.filter_map(|parameter| parameter.strip_prefix("dns="));
            let (Some(text), None) = (messages.next(), messages.next()) else {
                return Err(StatusCode::BAD_REQUEST);
            };
            let message = URL_SAFE_NO_PAD.decode(text).map_err(|_| StatusCode::BAD_REQUEST)?;
            match message.len() {
                0..=MESSAGE_OCTETS => Ok(Asked::Message(message)),
                _ => Err(StatusCode::URI_TOO_LONG),
            }
        }
        Method::POST => {
            let header = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
            // Parameters of a media type say nothing here; letters have no case (RFC 9110 §8.3.1).
            let media = header(CONTENT_TYPE).and_then(|text| text.split(';').next());
            if !media.is_some_and(|media| media.trim().eq_ignore_ascii_case(DNS_MESSAGE)) {
                return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
            }
            match header(CONTENT_LENGTH).map(str::parse::<usize>) {
                None => Ok(Asked::Body(MESSAGE_OCTETS)),
                Some(Ok(length)) if length <= MESSAGE_OCTETS => Ok(Asked::Body(length)),
                Some(Ok(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
                Some(Err(_)) => Err(StatusCode::BAD_REQUEST),
            }
        }
        _ => Err(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// Octets of the URI and of all fields.
fn header_octets(request: &Parts) -> usize {
    let uri = request.uri.path_and_query().map_or(0, |path| path.as_str().len());
    let fields = request.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    uri + fields.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    /// Method, URI and headers, and what is read of them.
    type Row<'r> = (&'r str, &'r str, &'r [(&'r str, &'r str)], Result<Asked, StatusCode>);

    fn check(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<Asked, StatusCode> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        read(&request.body(()).unwrap().into_parts().0, "/dns-query")
    }

    #[test]
    fn a_request_is_a_message_or_says_what_is_wrong() {
        let message = |octets: &[u8]| Ok(Asked::Message(octets.to_vec()));
        let post = ("content-type", DNS_MESSAGE);
        let long = "x".repeat(HEADER_OCTETS);
        let rows: [Row<'_>; 19] = [
            (
                "GET",
                "/dns-query?dns=AA",
                &[("x", &long)],
                Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            ),
            ("GET", "/dns-query?dns=AAEC", &[], message(&[0, 1, 2])),
            ("GET", "/dns-query?ct&dns=_-8&x=1", &[], message(&[0xff, 0xef])),
            ("GET", "https://dns.example/dns-query?dns=AA", &[], message(&[0])),
            ("GET", "/dns-query", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query?dns=AA&dns=AA", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query?dns=A", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query?dns=AA==", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query?dns=+/8", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/?dns=AA", &[], Err(StatusCode::NOT_FOUND)),
            ("GET", "/dns-query/?dns=AA", &[], Err(StatusCode::NOT_FOUND)),
            ("POST", "/dns-query", &[post], Ok(Asked::Body(65_535))),
            (
                "POST",
                "/dns-query",
                &[("content-type", "Application/DNS-Message; x=1")],
                Ok(Asked::Body(65_535)),
            ),
            ("POST", "/dns-query", &[], Err(StatusCode::UNSUPPORTED_MEDIA_TYPE)),
            (
                "POST",
                "/dns-query",
                &[("content-type", "text/plain")],
                Err(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ),
            (
                "POST",
                "/dns-query",
                &[post, ("content-length", "65536")],
                Err(StatusCode::PAYLOAD_TOO_LARGE),
            ),
            (
                "POST",
                "/dns-query",
                &[post, ("content-length", "99999999999999999999")],
                Err(StatusCode::BAD_REQUEST),
            ),
            ("POST", "/dns-query", &[post, ("content-length", "33")], Ok(Asked::Body(33))),
            ("DELETE", "/dns-query?dns=AA", &[], Err(StatusCode::METHOD_NOT_ALLOWED)),
        ];
        for (method, uri, headers, expected) in rows {
            assert_eq!(check(method, uri, headers), expected, "{method} {uri} {headers:?}");
        }
    }
}

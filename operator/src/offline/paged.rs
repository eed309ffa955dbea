//! Whole lists for commands that people run once: page by page, up to a bound. The operator itself reads its lists by
//! `observe/lists.rs`, object by object.

use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;

/// Objects of one page of a list.
pub(crate) const PAGE: u32 = 500;

/// The objects of a kind, up to the end of the page that reaches `most`.
pub(crate) struct Paged<T> {
    pub(crate) objects: Vec<T>,
    /// Whether there are more.
    pub(crate) is_cut: bool,
}

/// Reads them.
///
/// # Errors
/// The API server does not answer, or refuses; what was read before is not returned.
pub(crate) async fn paged<T>(api: &Api<T>, most: usize) -> kube::Result<Paged<T>>
where
    T: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut objects = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if objects.len() < most => params = params.continue_token(&token),
            more => return Ok(Paged { objects, is_cut: more.is_some() }),
        }
    }
}

/// A client of an API server with lists of `pages` pages, each with as many objects as it is asked for.
#[cfg(test)]
pub(crate) fn server_of_pages(pages: usize) -> kube::Client {
    let server = tower::service_fn(move |request: hyper::Request<kube::client::Body>| async move {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let of = |key: &str| {
            let value = query.split('&').find_map(|it| it.strip_prefix(key))?;
            value.parse::<usize>().ok()
        };
        let (page, limit) = (of("continue=").unwrap_or(0) + 1, of("limit=").unwrap());
        let next = if page < pages { page.to_string() } else { String::new() };
        let items = vec![serde_json::json!({"metadata": {"name": "a"}}); limit];
        let list = serde_json::json!({"kind": "List", "apiVersion": "v1", "items": items,
                "metadata": {"continue": next}});
        let body = kube::client::Body::from(list.to_string().into_bytes());
        Ok::<_, std::convert::Infallible>(hyper::Response::new(body))
    });
    kube::Client::new(server, "default")
}

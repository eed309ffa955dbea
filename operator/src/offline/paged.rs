//! Whole lists for commands that people run once: page by page, up to a bound, and object by object as those of the operator
//! (K23). Anyone who may edit a namespace can write objects of 1.5 MiB, and objects that no typed client reads.

use kube::Client;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

use crate::observe::lists::Lists;

/// Objects of one page of a list.
pub(crate) const PAGE: u32 = 500;

/// What a list had besides the objects that were read.
pub(crate) struct Paged {
    /// Whether there are more.
    pub(crate) is_cut: bool,
    /// Objects that cannot be read.
    pub(crate) skipped: u32,
}

impl Paged {
    /// What was not read, one sentence each.
    pub(crate) fn unread(&self, what: &str, read: usize) -> Vec<String> {
        let cut = self.is_cut.then(|| format!("only the first {read} {what} were read"));
        let skipped = (self.skipped > 0)
            .then(|| format!("{} of the {what} cannot be read and are left out", self.skipped));
        cut.into_iter().chain(skipped).collect()
    }
}

/// Gives `take` each object of the list at this path as soon as it has arrived, up to the end of the page that reaches
/// `most`.
///
/// # Errors
/// The API server does not answer, or refuses; what came before was given.
pub(crate) async fn paged<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    most: usize,
    mut take: impl FnMut(T),
) -> kube::Result<Paged> {
    let lists = Lists::default();
    let (mut objects, mut skipped) = (0, 0);
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = lists.page(client, path, &params, &mut take).await?;
        objects += page.objects as usize;
        skipped += page.skipped;
        match page.token {
            Some(token) if objects < most => params = params.continue_token(&token),
            more => return Ok(Paged { is_cut: more.is_some(), skipped }),
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

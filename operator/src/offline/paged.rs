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

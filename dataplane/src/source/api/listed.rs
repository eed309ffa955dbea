//! What a list says besides its objects, and the end of one that is read beside a watch.

use std::pin::Pin;

use process::pages::Pages;

use super::supervise::Failure;

/// A list that is complete.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) version: String,
    pub(super) pages: u32,
    /// Objects that changed an answer.
    pub(super) differences: u64,
}

/// How a list beside a watch ended, and what it says of the size of pages.
pub(super) type Ended = (Pages, Result<Listed, Failure>);

/// A list that is read beside a watch.
pub(super) type Beside = Pin<Box<dyn Future<Output = Ended>>>;

/// The end of the list beside the watch, where there is one.
pub(super) async fn end_of(beside: &mut Option<Beside>) -> Ended {
    match beside {
        Some(list) => list.await,
        None => std::future::pending().await,
    }
}

//! One consistent list, page by page, each object applied when it has arrived (E20, E21, K23).

use std::time::Duration;

use http_body_util::BodyExt;
use process::items::{Items, Part};
use process::pages::{Missed, Pages, Tries};
use tokio::time::{Instant, sleep, timeout};

use super::decode::{self, PageMetadata};
use super::listed::Listed;
use super::pace::{chance, due_after};
use super::sink::Sink;
use super::supervise::{During, Failure, Next, Supervisor};
use super::watch::{ANSWER_TIMEOUT, Stream, chain, silent};
use crate::source::objects::convert;
use crate::status::feed::Feed;

/// A page without its objects.
#[derive(Debug, Default)]
struct Page {
    metadata: PageMetadata,
    objects: u32,
    octets: usize,
    /// Objects that are too long to be read.
    too_long: u32,
    /// Objects that changed an answer.
    differences: u64,
}

impl Stream {
    /// One consistent list, at whose version the next watch starts.
    pub(super) async fn list(&mut self) -> Result<(), Failure> {
        self.give_up_beside();
        self.mark_relisted();
        self.sink.borrow_mut().begin(&self.watched);
        let listed = self.read_list().await?;
        self.complete(listed, false);
        Ok(())
    }

    /// Pages of one consistent list. What is not in them is removed only at their end (E21).
    pub(super) async fn read_list(&mut self) -> Result<Listed, Failure> {
        let (begun, mut differences, mut pages) = (Instant::now().into_std(), 0, 0);
        let mut token: Option<String> = None;
        let mut version: Option<String> = None;
        loop {
            let page = self.page_at_last(token.as_deref(), begun).await?;
            differences += page.differences;
            pages += 1;
            // Of the first page: objects of later ones are as of then too.
            version.get_or_insert(page.metadata.resource_version);
            token = page.metadata.token.filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        Ok(Listed { version: version.unwrap_or_default(), pages, differences })
    }

    /// A list is complete. A watch beside which it was read continues where it is, also below the version of the list: an event
    /// of this time made its object one of the list, and only the next event says that it was deleted.
    pub(super) fn complete(&mut self, listed: Listed, was_beside: bool) {
        let Listed { version, pages, differences } = listed;
        let mut sink = self.sink.borrow_mut();
        let removed = sink.complete(&self.watched, &version);
        if std::mem::take(&mut self.is_comparing) {
            // Most are events that arrived later; a number that grows each time is a defect.
            let differences = differences + removed as u64;
            sink.feed(&self.watched, |feed| feed.differences += differences);
            if differences > 0 {
                let resource = self.watched.plural();
                tracing::info!(resource, differences, "a list for comparison differed");
            }
        }
        drop(sink);
        self.compare_at = due_after(self.compare_after);
        self.supervisor.listed(pages);
        self.pages.complete();
        match was_beside {
            true => self.listed_at = decode::version(Some(&version)),
            false => {
                (self.list_at, self.listed_at) = (None, 0);
                self.version = Some(version);
            }
        }
    }

    /// Reads a page. A later one that is refused or breaks off is asked for again.
    async fn page_at_last(
        &mut self,
        token: Option<&str>,
        list_begun: std::time::Instant,
    ) -> Result<Page, Failure> {
        // Each page has waits of its own.
        let mut supervisor = Supervisor::default();
        let mut tries = Tries::begin(Instant::now().into_std(), list_begun);
        loop {
            let waiting = self.sink.borrow().waiting(&self.watched);
            let failure = match self.page(token).await {
                Ok(page) => {
                    if !tries.is_first() && !self.is_beside {
                        // The list may take minutes yet, and nothing is wrong with it.
                        self.sink.borrow().feed(&self.watched, Feed::went_on);
                    }
                    return Ok(page);
                }
                Err(failure) => failure,
            };
            // Its objects come again.
            self.sink.borrow_mut().wait_no_more(&self.watched, waiting);
            let now = Instant::now().into_std();
            let next = supervisor.next(&failure, During::List, now, chance());
            let missed = missed(&failure).filter(|_| token.is_some());
            if !missed.is_some_and(|missed| tries.another(now, next.after, missed)) {
                return Err(failure);
            }
            match self.is_beside {
                // The watch brings what is new.
                true => self.sink.borrow().feed(&self.watched, |feed| feed.failures += 1),
                false => self.log_failure(&failure, Next { relist: false, ..next }),
            }
            sleep(next.after).await;
            if self.is_relist_due() {
                return Err(Failure::Relist);
            }
        }
    }

    /// Reads a page, and learns from it how large the next one may be.
    async fn page(&mut self, token: Option<&str>) -> Result<Page, Failure> {
        let (mut is_begun, asked) = (false, Instant::now());
        let read = self.read_page(token, &mut is_begun).await;
        match &read {
            Ok(page) => self.pages.took(page.objects, page.octets),
            // Where earlier pages came, the server is there: it may fail to build this one.
            Err(failure) => {
                resize(&mut self.pages, failure, asked.elapsed(), is_begun || token.is_some());
            }
        }
        read
    }

    async fn read_page(
        &mut self,
        token: Option<&str>,
        is_begun: &mut bool,
    ) -> Result<Page, Failure> {
        let request = self.watched.list(self.pages.limit(), token);
        let mut body = self.send(request).await?.into_body();
        let (mut items, mut page) = (Items::default(), Page::default());
        loop {
            let frame = match timeout(ANSWER_TIMEOUT, body.frame()).await {
                Err(_) => return Err(silent(ANSWER_TIMEOUT)),
                Ok(None) => break,
                Ok(Some(Err(error))) => return Err(Failure::Link(chain(&error))),
                Ok(Some(Ok(frame))) => frame,
            };
            let Some(chunk) = frame.data_ref() else { continue };
            *is_begun = true;
            page.octets += chunk.len();
            items.add(chunk, |part| self.take_part(part, token.is_none(), &mut page))?;
        }
        items.finish()?;
        match page.metadata.resource_version.is_empty() {
            // Without a version there could be no watch, and an empty list would remove all objects.
            true => Err(Failure::Garbage("a list without a resourceVersion".into())),
            false => Ok(page),
        }
    }

    fn take_part(&self, part: Part<'_>, is_first: bool, page: &mut Page) -> Result<(), Failure> {
        let mut sink = self.sink.borrow_mut();
        if sink.is_overtaken(&self.watched) {
            return Err(Failure::Overtaken);
        }
        match part {
            Part::Metadata(text) => {
                page.metadata = serde_json::from_slice(text)
                    .map_err(|error| Failure::Garbage(error.to_string()))?;
                let version = decode::version(Some(&page.metadata.resource_version));
                let has_objects = page.objects > 0;
                if is_first && self.begins_again(&mut sink, version, has_objects) {
                    return Err(Failure::Relist);
                }
            }
            Part::Object(text) => {
                page.objects += 1;
                page.differences += u64::from(sink.apply_of_list(&self.watched, text));
            }
            Part::TooLong => {
                page.objects += 1;
                page.too_long += 1;
                sink.skip_too_long(&self.watched, page.too_long == 1);
            }
        }
        Ok(())
    }

    /// Whether a list of this version must begin again, because the API server went back (K22).
    fn begins_again(&self, sink: &mut Sink, version: u64, has_objects: bool) -> bool {
        match self.is_beside {
            // Events that came since it was asked for may be newer.
            true => self.is_back(sink, version),
            false => sink.list_is_at(&self.watched, version, has_objects),
        }
    }

    /// Whether the API server is below the version held, in a consistent read that was asked for at this version.
    fn is_back(&self, sink: &mut Sink, version: u64) -> bool {
        let held = decode::version(self.version.as_deref());
        let is_back = version != 0 && version < held;
        // Not where another stream has noticed it meanwhile.
        if is_back && !self.is_relist_due() {
            sink.went_back(&self.watched, version, held);
        }
        is_back
    }

    /// Asks for one object before a watch continues: an API server whose etcd was restored from a backup accepts a watch
    /// at a version that it does not have yet, and stays silent until it has passed it (K22). So the version held must
    /// be confirmed where the watch before was silent, broke off or ended too soon. The stream of Namespaces asks before
    /// each watch, on behalf of all: the history of another cluster may contain our version.
    pub(super) async fn look(&mut self) -> Result<(), Failure> {
        let names_the_cluster = self.watched.names_the_cluster();
        if self.is_relist_due() {
            return Err(Failure::Relist);
        }
        if !names_the_cluster && !self.is_in_doubt() {
            return Ok(());
        }
        let (version, uid) = self.read_one().await?;
        let mut sink = self.sink.borrow_mut();
        if names_the_cluster {
            sink.ingest.look_at_cluster(uid);
        }
        let is_back = self.is_back(&mut sink, version);
        drop(sink);
        if is_back || self.is_relist_due() {
            return Err(Failure::Relist);
        }
        self.is_confirmed();
        Ok(())
    }

    /// The version of a consistent list of one object, and that object's uid, 0 if there is none.
    async fn read_one(&mut self) -> Result<(u64, u128), Failure> {
        let mut body = self.send(self.watched.one()).await?.into_body();
        let (mut items, mut metadata, mut uid) = (Items::default(), PageMetadata::default(), 0);
        loop {
            let frame = match timeout(ANSWER_TIMEOUT, body.frame()).await {
                Err(_) => return Err(silent(ANSWER_TIMEOUT)),
                Ok(None) => break,
                Ok(Some(Err(error))) => return Err(Failure::Link(chain(&error))),
                Ok(Some(Ok(frame))) => frame,
            };
            items.add(frame.data_ref().map_or(&[][..], |data| data), |part| {
                match part {
                    Part::Metadata(text) => {
                        metadata = serde_json::from_slice(text).unwrap_or_default();
                    }
                    Part::Object(text) => {
                        uid = decode::named(text).map_or(0, |named| convert::uid(&named.metadata));
                    }
                    Part::TooLong => {}
                }
                Ok::<(), Failure>(())
            })?;
        }
        items.finish()?;
        Ok((decode::version(Some(&metadata.resource_version)), uid))
    }
}

/// Why a page did not come, if the same page may come later: its version is kept (410 says that it is not), and so is our
/// permission.
fn missed(failure: &Failure) -> Option<Missed> {
    match failure {
        failure if failure.asks_for_patience() => Some(Missed::Busy),
        Failure::Status { code: 413 | 500..=599, .. } | Failure::Garbage(_) | Failure::Link(_) => {
            Some(Missed::Failed)
        }
        Failure::Status { .. }
        | Failure::End
        | Failure::Silence
        | Failure::Overtaken
        | Failure::Relist => None,
    }
}

/// A page was not read to its end, `after` this time; `is_begun`: it, or an earlier page of its list, had begun to arrive.
fn resize(pages: &mut Pages, failure: &Failure, after: Duration, is_begun: bool) {
    match failure {
        failure if failure.asks_for_patience() => {}
        Failure::Status { code: 410, .. } => pages.grow(),
        // Too large, it took too long, or the API server is busy.
        Failure::Status { code: 413, .. } => pages.shrink(),
        Failure::Status { code: 500..=599, .. } | Failure::Garbage(_) => {
            pages.failed(after);
        }
        Failure::Link(_) if is_begun => pages.failed(after),
        // The failure has another reason than the size.
        Failure::Status { .. }
        | Failure::Link(_)
        | Failure::End
        | Failure::Silence
        | Failure::Overtaken
        | Failure::Relist => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k23_a_page_that_fails_is_not_asked_for_again_in_the_same_size() {
        let status = |code| Failure::Status { code, message: String::new(), retry_after: None };
        let resized = |failure: Failure, seconds, is_begun, times| {
            let mut pages = Pages::new(50, 100);
            let took = Duration::from_secs(seconds);
            (0..times).for_each(|_| resize(&mut pages, &failure, took, is_begun));
            pages.limit()
        };
        let after = |failure, is_begun| resized(failure, 1, is_begun, 2);
        assert_eq!(
            resized(status(413), 1, false, 1),
            25,
            "the API server says that it is too large"
        );
        for slow in [status(504), Failure::Link("reset".into()), Failure::Garbage("cut".into())] {
            assert_eq!(resized(slow, 31, true, 1), 25, "no time is left to ask for it again");
        }
        assert_eq!(resized(status(504), 1, true, 1), 50, "once may be by chance");
        assert_eq!(after(status(504), false), 25);
        assert_eq!(after(Failure::Link("nothing came".into()), true), 25);
        assert_eq!(after(Failure::Garbage("not whole".into()), true), 25);
        assert_eq!(after(status(410), true), 100, "it took too long in all");
        for harmless in [status(403), status(429), Failure::Link("refused".into())] {
            assert_eq!(after(harmless, false), 50);
        }
        let retry_after = Some(Duration::from_secs(1));
        let busy = Failure::Status { code: 503, message: String::new(), retry_after };
        assert_eq!(resized(busy, 31, true, 2), 50, "the API server is busy, and says so");
    }
}

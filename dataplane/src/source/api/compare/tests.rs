//! Lists and watches of a scripted API server, with the clock of the test.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dataplane_core::Resource;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use super::*;
use crate::source::api::apply_in_turns;
use crate::source::api::client::ApiClient;
use crate::source::api::ingest::Ingest;
use crate::source::api::sink::Sink;
use crate::source::api::sink::tests::{adopt, sink};
use crate::source::api::watched::Watched;
use crate::status::feed::Feed;

mod api;

use api::Api;

const SERVICES: Watched = Watched::Objects(Resource::Services);
const SECOND: Duration = Duration::from_secs(1);
/// A list for comparison is due after this time, or up to four tenths later.
const COMPARE_AFTER: Duration = Duration::from_secs(60);

/// A sink that one stream of Services feeds.
struct Followed {
    api: Api,
    sink: Rc<RefCell<Sink>>,
}

impl Followed {
    fn feed<T>(&self, read: impl FnOnce(&mut Feed) -> T) -> T {
        self.sink.borrow().feed(&SERVICES, read)
    }

    /// Services that are held.
    fn services(&self) -> usize {
        self.sink.borrow_mut().ingest.publish();
        self.sink.borrow().ingest.status.shared.read().objects[Resource::Services as usize]
    }

    /// Objects of which something is not served.
    fn skipped(&self) -> usize {
        let mut sink = self.sink.borrow_mut();
        let Ingest { status, writer, .. } = &mut sink.ingest;
        status.report(writer);
        status.shared.read().skipped.first(10).len()
    }

    fn watches(&self) -> usize {
        self.api.server().watches.len()
    }

    /// Waits until a page was asked for so often.
    async fn until_asked(&self, page: usize, times: usize) {
        for _ in 0..10_000 {
            sleep(SECOND).await;
            if self.api.server().asked[page] == times {
                return;
            }
        }
        panic!("page {page} was not asked for {times} times: {:?}", self.api.server().asked);
    }
}

/// Follows the Services of this API server until the test ends.
async fn with(api: Api, compare_after: Duration, test: impl AsyncFnOnce(Followed)) {
    let mut sink = sink();
    adopt(&mut sink, &json!({"format": 1}));
    let pace = &mut sink.configuration.pace;
    (pace.compare_after, pace.silence) = (compare_after, Duration::from_secs(1_000_000));
    let sink = Rc::new(RefCell::new(sink));
    let client = Rc::new(ApiClient::of(api.client()));
    let (_dead, dead) = watch::channel(0);
    let stream = Stream::new(SERVICES, client, sink.clone(), dead);
    tokio::select! {
        () = stream.follow() => {}
        () = apply_in_turns(sink.clone()) => {}
        () = test(Followed { api, sink }) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn e25_while_lists_for_comparison_are_refused_the_watch_continues() {
    for page in [1, 3] {
        with(Api::new(), COMPARE_AFTER, async |it| {
            sleep(SECOND).await;
            assert_eq!((it.services(), it.watches()), (3, 1));
            it.api.refuse(page, vec![(429, 32); 1_000]);
            sleep(10 * COMPARE_AFTER).await;
            let asked = it.api.server().asked[page];
            assert!(asked > 3, "{asked} lists or pages were refused");
            it.api.delete("b");
            sleep(SECOND).await;
            assert_eq!((it.services(), it.watches()), (2, 1), "page {page} is refused");
            assert!(it.feed(|feed| feed.trouble.is_none() && feed.failures > 3));
            assert_eq!(it.feed(|feed| feed.relists), 0);
            it.api.refuse(page, Vec::new());
            sleep(10 * COMPARE_AFTER).await;
            assert!(it.feed(|feed| feed.relists) > 1, "lists follow");
            assert_eq!((it.services(), it.watches()), (2, 1));
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn e25_an_event_shows_while_a_list_is_read_beside_it_and_wins_over_it() {
    for page in [1, 2] {
        with(Api::new(), COMPARE_AFTER, async |it| {
            sleep(SECOND).await;
            it.api.server().kept_back = Some(page);
            it.until_asked(page, 2).await;
            // The list has it still.
            it.api.delete("c");
            it.api.put("b");
            sleep(SECOND).await;
            assert_eq!(it.services(), 2, "at once");
            it.api.let_go_on();
            sleep(SECOND).await;
            assert_eq!(it.feed(|feed| (feed.relists, feed.differences, feed.resets)), (1, 0, 0));
            assert_eq!((it.services(), it.watches()), (2, 1), "page {page} came late");
            // Events still come.
            it.api.delete("b");
            sleep(SECOND).await;
            assert_eq!(it.services(), 1);
        })
        .await;
    }
}

/// The API server sends events later than it shows them in a list.
#[tokio::test(start_paused = true)]
async fn e25_what_was_deleted_between_an_event_and_a_later_list_is_removed() {
    with(Api::new(), COMPARE_AFTER, async |it| {
        sleep(SECOND).await;
        it.api.server().is_late = true;
        it.api.put("b");
        it.api.delete("b");
        it.api.put("c");
        it.api.server().kept_back = Some(1);
        it.until_asked(1, 2).await;
        // This event makes `b` one of those that are not removed at the end of the list, which does not have it.
        it.api.server().send_late();
        sleep(SECOND).await;
        it.api.let_go_on();
        sleep(SECOND).await;
        assert_eq!(it.feed(|feed| feed.relists), 1);
        it.api.server().send_late();
        it.api.server().send_late();
        sleep(SECOND).await;
        assert_eq!((it.services(), it.watches()), (2, 1), "`b` is gone");
    })
    .await;
}

/// An object that came and went before a list is not shown for the time between its two events.
#[tokio::test(start_paused = true)]
async fn e25_of_late_events_that_a_list_has_already_only_deletions_are_used() {
    with(Api::new(), COMPARE_AFTER, async |it| {
        sleep(SECOND).await;
        it.api.server().is_late = true;
        it.api.put("brief");
        it.api.delete("brief");
        it.until_asked(3, 2).await;
        sleep(SECOND).await;
        assert_eq!((it.feed(|feed| feed.relists), it.services()), (1, 3));
        for _ in 0..2 {
            it.api.server().send_late();
            sleep(SECOND).await;
            assert_eq!(it.services(), 3);
        }
        it.api.server().is_late = false;
        it.api.put("later");
        sleep(SECOND).await;
        assert_eq!((it.services(), it.watches()), (4, 1));
    })
    .await;
}

/// The list shows the object that has taken the name of the one that the late events are about.
#[tokio::test(start_paused = true)]
async fn e25_an_object_that_was_created_again_stays_behind_late_events_of_the_one_before() {
    for is_readable in [true, false] {
        with(Api::new(), COMPARE_AFTER, async |it| {
            sleep(SECOND).await;
            it.api.server().is_late = true;
            match is_readable {
                true => it.api.put("b"),
                false => it.api.put_unreadable("b"),
            }
            it.api.delete("b");
            it.api.put("b");
            it.api.server().kept_back = Some(3);
            it.until_asked(3, 2).await;
            it.api.server().send_late();
            sleep(SECOND).await;
            it.api.let_go_on();
            sleep(SECOND).await;
            assert_eq!(it.feed(|feed| feed.relists), 1);
            assert_eq!(it.skipped(), 0, "what is wrong with the one before is of the past");
            for _ in 0..2 {
                it.api.server().send_late();
                sleep(SECOND).await;
                assert_eq!((it.services(), it.watches()), (3, 1), "readable: {is_readable}");
            }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn l18_what_is_passed_over_while_a_list_is_read_is_in_another_list() {
    with(Api::new(), 60 * COMPARE_AFTER, async |it| {
        sleep(SECOND).await;
        it.api.server().kept_back = Some(2);
        it.until_asked(2, 2).await;
        it.api.put_too_long();
        sleep(SECOND).await;
        assert_eq!(it.feed(|feed| feed.undecodable), 1);
        it.api.let_go_on();
        sleep(SECOND).await;
        assert_eq!(it.feed(|feed| feed.relists), 1);
        // If that list is refused, the next one comes as soon.
        it.api.refuse(1, vec![(429, 1)]);
        sleep(LIST_AGAIN_AFTER.mul_f64(1.5)).await;
        assert_eq!(it.api.server().asked[1], 3);
        sleep(LIST_AGAIN_AFTER.mul_f64(1.5)).await;
        assert_eq!((it.api.server().asked[1], it.feed(|feed| feed.relists)), (4, 2));
        assert_eq!(it.watches(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn k22_a_list_beside_the_watch_finds_that_the_api_server_went_back() {
    with(Api::new(), COMPARE_AFTER, async |it| {
        sleep(SECOND).await;
        it.api.server().version = 7;
        it.api.server().services.remove("c");
        sleep(2 * COMPARE_AFTER).await;
        assert_eq!(it.feed(|feed| (feed.resets, feed.failures)), (1, 0));
        assert_eq!((it.services(), it.watches()), (2, 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn e25_a_list_that_is_needed_ends_the_one_beside_the_watch() {
    with(Api::new(), COMPARE_AFTER, async |it| {
        sleep(SECOND).await;
        it.api.server().kept_back = Some(2);
        it.until_asked(2, 2).await;
        it.api.server().kept_back = None;
        it.sink.borrow().ingest.relist([Resource::Services].into_iter());
        sleep(SECOND).await;
        it.api.go_on.notify_one();
        sleep(SECOND).await;
        assert_eq!((it.feed(|feed| feed.relists), it.watches()), (1, 2));
        assert_eq!(it.api.server().asked[3], 2, "the list beside the watch was not read on");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn k9_a_list_is_not_begun_again_while_the_api_server_asks_for_patience() {
    for (code, waits) in [(429, vec![1, 2, 4, 8, 16, 32, 32]), (503, vec![32; 4])] {
        let api = Api::new();
        api.refuse(2, waits.iter().rev().map(|seconds| (code, *seconds)).collect());
        with(api, 60 * COMPARE_AFTER, async |it| {
            sleep(240 * SECOND).await;
            let asked = it.api.server().asked;
            assert_eq!((it.services(), asked[1], asked[2]), (3, 1, waits.len() + 1), "{code}");
        })
        .await;
    }
    // Until etcd may lose its version.
    let api = Api::new();
    api.refuse(2, vec![(429, 32); 100]);
    with(api, 60 * COMPARE_AFTER, async |it| {
        sleep(200 * SECOND).await;
        assert_eq!(it.api.server().asked[1], 1);
        sleep(200 * SECOND).await;
        assert_eq!(it.api.server().asked[1], 2);
    })
    .await;
}

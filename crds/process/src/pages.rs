//! How many objects the next page of a list of the API server is asked for. Pages of large objects shrink, because the API
//! server builds a page as a whole, which takes memory and time; a page that failed is not asked for again in the same
//! size (K23). Pure.

use std::time::{Duration, Instant};

/// Requests for one page, after which its list begins again.
const MAX_TRIES: u32 = 8;
/// Time for them. A list that begins again brings what is new in its first pages.
const TRIES_TIME: Duration = Duration::from_secs(30);
/// Time since a list began, within which its next page is waited for while the API server is busy. A list that begins again asks
/// it for all pages again; but etcd keeps the version of a list for 5 minutes only.
const BUSY_TIME: Duration = Duration::from_secs(240);

/// Most octets that a page should have.
const PAGE_OCTETS: usize = 8 << 20;

/// The size of the next page.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    first: u32,
    most: u32,
    next: u32,
    /// A page of this size failed: none grows to it again before a list was complete.
    failed_at: Option<u32>,
    /// Requests for a page that failed in a row.
    failures: u32,
}

/// A page that fails this often in a row may be too large. One that fails once rather met a busy API server, or a connection
/// that broke: in a list of hundreds of pages that would shrink them to one object.
const TOO_LARGE: u32 = 2;

impl Pages {
    /// Pages of at most `most` objects; `first` in the first one, while nothing is known of their size.
    pub fn new(first: u32, most: u32) -> Pages {
        Pages { first, most, next: first.min(most), failed_at: None, failures: 0 }
    }

    /// How many objects the next page may have.
    pub fn limit(&self) -> u32 {
        self.next
    }

    /// A page had this many objects, in this many octets: the next one has at most twice as many, and no more than fit if
    /// they are as large.
    pub fn took(&mut self, objects: u32, octets: usize) {
        let each = octets / objects.max(1) as usize;
        let fit = u32::try_from(PAGE_OCTETS / each.max(1)).unwrap_or(u32::MAX);
        let grown = self.next.saturating_mul(2).min(self.largest());
        self.next = fit.clamp(1, grown);
        self.failures = 0;
    }

    /// A page failed after this time, and its size may be why: the second time in a row, the next one is half as large. At once
    /// if this took all the time that there is for the tries of a page: the list then begins again, with pages that succeed, and
    /// would break off at the same page in the same size.
    pub fn failed(&mut self, after: Duration) {
        match after > TRIES_TIME {
            true => self.shrink(),
            false => self.failed_once_more(),
        }
    }

    /// The API server says that a page was too large.
    pub fn shrink(&mut self) {
        self.failures = self.failures.max(TOO_LARGE - 1);
        self.failed_once_more();
    }

    fn failed_once_more(&mut self) {
        self.failures = self.failures.saturating_add(1);
        if self.failures < TOO_LARGE {
            return;
        }
        // Where smaller ones fail too, the API server may be unwell, and their size says nothing.
        if self.failures == TOO_LARGE {
            self.failed_at = Some(self.next.min(self.failed_at.unwrap_or(u32::MAX)));
        }
        self.next = (self.next / 2).max(1);
    }

    /// The list took longer than etcd keeps its version, 5 minutes: the next one needs fewer requests. Where no larger size is
    /// left, those that failed are tried again: in this one it cannot end.
    pub fn grow(&mut self) {
        self.failures = 0;
        if self.largest() <= self.next {
            self.failed_at = None;
        }
        self.next = self.next.saturating_mul(2).min(self.largest());
    }

    /// A list is complete: the sizes that failed are tried again. The first objects of the next list may be larger than the last
    /// ones of this one.
    pub fn complete(&mut self) {
        (self.failed_at, self.failures) = (None, 0);
        self.next = self.next.min(self.first);
    }

    /// Larger than the half of a size that failed and smaller than that: a list that is too slow in small pages and too
    /// large in twice the size may be neither in between.
    fn largest(&self) -> u32 {
        let below = self.failed_at.map_or(self.most, |size| size - (size / 4).max(1));
        below.clamp(1, self.most)
    }
}

/// Why a page did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The API server has too much to do, and says so: that tells nothing about this page.
    Busy,
    /// Another reason, which may be the page.
    Failed,
}

/// The requests for one page. Where a few of a hundred requests fail, a list of hundreds of pages would hardly ever reach its
/// end if one that failed were not made again.
#[derive(Clone, Copy, Debug)]
pub struct Tries {
    list_begun: Instant,
    begun: Instant,
    made: u32,
    is_first: bool,
}

impl Tries {
    /// The first one is made now, for a page of a list that began then.
    pub fn begin(now: Instant, list_begun: Instant) -> Tries {
        Tries { list_begun, begun: now, made: 1, is_first: true }
    }

    /// Whether none failed yet.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// Whether there is another one after this wait: it counts as made, unless the API server was busy.
    pub fn another(&mut self, now: Instant, wait: Duration, missed: Missed) -> bool {
        self.is_first = false;
        let ends_at = now + wait;
        let (since, time) = match missed {
            Missed::Busy => (self.list_begun, BUSY_TIME),
            Missed::Failed => (self.begun, TRIES_TIME),
        };
        let is_in_time = ends_at.saturating_duration_since(since) <= time;
        match missed {
            Missed::Busy => {
                // The time for the page itself begins when it is asked for again.
                self.begun = if is_in_time { ends_at } else { self.begun };
                is_in_time
            }
            Missed::Failed => {
                let may = self.made < MAX_TRIES && is_in_time;
                self.made += u32::from(may);
                may
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const SECOND: Duration = Duration::from_secs(1);

    fn sizes(pages: &mut Pages, octets_each: usize, count: usize) -> Vec<u32> {
        let step = |_| {
            let limit = pages.limit();
            pages.took(limit, limit as usize * octets_each);
            limit
        };
        (0..count).map(step).collect()
    }

    #[test]
    fn k23_pages_grow_while_objects_are_small_and_shrink_when_they_are_large() {
        let mut pages = Pages::new(50, 500);
        assert_eq!(sizes(&mut pages, 1_500, 6), [50, 100, 200, 400, 500, 500]);
        assert_eq!(sizes(&mut pages, MIB, 3), [500, 8, 8]);
        assert_eq!(sizes(&mut pages, 10 * MIB, 3), [8, 1, 1]);
        let mut listed = Pages::new(50, 500);
        assert_eq!(sizes(&mut listed, 1_500, 3), [50, 100, 200]);
        listed.complete();
        assert_eq!(sizes(&mut listed, MIB, 2), [50, 8], "its first objects may be large");
        assert_eq!(sizes(&mut pages, 1_500, 4), [1, 2, 4, 8]);
        assert_eq!(Pages::new(50, 30).limit(), 30);
    }

    #[test]
    fn k23_a_page_that_took_all_the_time_is_smaller_in_the_next_list() {
        let mut pages = Pages::new(50, 500);
        let mut lists = 0;
        // Early pages succeed in any size, the last one only with fewer than 25 objects.
        loop {
            (0..5).for_each(|_| pages.took(pages.limit(), 50_000));
            if pages.limit() < 25 {
                break;
            }
            pages.failed(TRIES_TIME + SECOND);
            lists += 1;
        }
        assert!(lists <= 12, "{lists} lists broke off");
    }

    /// Lists until one is complete, `lists` at most; pages of `too_many` objects fail. What was asked for.
    fn listed(pages: &mut Pages, objects: u32, too_many: u32, lists: usize) -> Vec<Vec<u32>> {
        let mut asked = Vec::new();
        while asked.len() < lists {
            let (mut left, mut list) = (objects, Vec::new());
            while left > 0 {
                list.push(pages.limit());
                let page = pages.limit().min(left);
                if page >= too_many {
                    break;
                }
                left -= page;
                pages.took(page, page as usize * 1_500);
            }
            asked.push(list);
            if left == 0 {
                pages.complete();
                break;
            }
            pages.shrink();
        }
        asked
    }

    #[test]
    fn k23_a_list_ends_where_pages_that_grew_again_would_fail_again() {
        let mut pages = Pages::new(20, 500);
        let asked = listed(&mut pages, 660, 200, 9);
        let expected: [&[u32]; 3] = [&[20, 40, 80, 160, 320], &[160, 240], &[120, 180, 180, 180]];
        assert_eq!(asked, expected);
        for too_many in 2..500 {
            let mut pages = Pages::new(20, 500);
            let lists = listed(&mut pages, 5_000, too_many, 20).len();
            assert!(lists < 20, "pages of {too_many} objects fail");
        }
    }

    #[test]
    fn k23_a_page_is_asked_for_eight_times_within_half_a_minute() {
        let now = Instant::now();
        let another = |waits: &[u64]| {
            let (mut tries, mut at) = (Tries::begin(now, now), now);
            let mut asks = |wait: &&u64| {
                let may = tries.another(at, SECOND * (**wait as u32), Missed::Failed);
                at += SECOND * (**wait as u32);
                may
            };
            waits.iter().take_while(&mut asks).count()
        };
        assert_eq!(another(&[1; 20]), 7, "and the first one");
        assert_eq!(another(&[10; 20]), 3, "30 s after the first one");
        assert_eq!(another(&[31]), 0);
        let mut tries = Tries::begin(now, now);
        let may = tries.is_first() && tries.another(now, SECOND, Missed::Failed);
        assert!(may && !tries.is_first());
    }

    #[test]
    fn k9_a_busy_api_server_is_waited_for_until_the_list_is_four_minutes_old() {
        let begun = Instant::now();
        let mut tries = Tries::begin(begun + 100 * SECOND, begun);
        let mut at = begun + 100 * SECOND;
        // As kube-apiserver asks for, while it has too much to do.
        for wait in [1, 2, 4, 8, 16, 32, 32, 32] {
            assert!(tries.another(at, wait * SECOND, Missed::Busy), "{wait} s");
            at += wait * SECOND;
        }
        assert!(!tries.is_first());
        assert_eq!(at, begun + 227 * SECOND);
        assert!(!tries.another(at, 14 * SECOND, Missed::Busy), "its version is lost soon");
        // What the API server asked for is no time of the page.
        let waits = [10, 10, 10, 1].map(|wait| {
            let may = tries.another(at, wait * SECOND, Missed::Failed);
            at += wait * SECOND;
            may
        });
        assert_eq!(waits, [true, true, true, false]);
    }

    #[test]
    fn k23_pages_keep_their_size_where_a_few_of_a_hundred_requests_fail() {
        let mut pages = Pages::new(50, 100);
        let (mut left, mut requests) = (20_000, 0);
        while left > 0 {
            requests += 1;
            if requests % 20 == 0 {
                pages.failed(SECOND);
                continue;
            }
            let page = pages.limit().min(left);
            pages.took(page, page as usize * 1_500);
            left -= page;
        }
        assert_eq!(requests, 211, "201 pages, and 10 requests that failed");
        pages.failed(SECOND);
        assert_eq!(pages.limit(), 100, "once");
        pages.failed(SECOND);
        assert_eq!(pages.limit(), 50, "it may be too large");
    }

    #[test]
    fn k23_a_size_that_failed_is_halved_down_to_one_object() {
        let mut pages = Pages::new(20, 500);
        let mut sizes = vec![pages.limit()];
        for _ in 0..6 {
            pages.shrink();
            sizes.push(pages.limit());
        }
        assert_eq!(sizes, [20, 10, 5, 2, 1, 1, 1]);
        pages.grow();
        assert_eq!(pages.limit(), 2, "the list was too slow");
    }

    #[test]
    fn k23_after_an_outage_pages_grow_up_to_the_size_that_failed_first() {
        let mut pages = Pages::new(20, 500);
        (0..9).for_each(|_| pages.shrink());
        assert_eq!(sizes(&mut pages, 1_500, 7), [1, 2, 4, 8, 15, 15, 15]);
        pages.complete();
        assert_eq!(sizes(&mut pages, 1_500, 3), [15, 30, 60], "another list, another time");
    }

    #[test]
    fn k23_the_smallest_page_that_is_too_slow_is_not_the_last_word() {
        let mut pages = Pages::new(1, 500);
        pages.shrink();
        pages.took(1, 1_500);
        assert_eq!(pages.limit(), 1, "a page of one failed");
        pages.grow();
        assert_eq!(pages.limit(), 2);
    }

    #[test]
    fn k23_a_list_too_slow_in_small_pages_and_too_large_in_others_is_tried_between() {
        let mut pages = Pages::new(50, 400);
        let mut asked = Vec::new();
        for is_too_large in [true, false, false, true, false, false] {
            asked.push(pages.limit());
            match is_too_large {
                true => pages.shrink(),
                false => pages.grow(),
            }
        }
        // A size that failed is asked for again only where nothing is left between.
        assert_eq!(asked, [50, 25, 38, 76, 38, 57]);
    }
}

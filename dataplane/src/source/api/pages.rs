//! How many objects the next page of a list is asked for. Pages of large objects shrink, because the API server
//! builds a page as a whole, which takes memory and time; a page that failed is not asked for again in the same size
//! (K23). Pure.

use super::supervise::Failure;

/// Most octets that a page should have.
const PAGE_OCTETS: usize = 8 << 20;
/// Objects in the first page, while nothing is known of their size.
const FIRST_PAGE: u32 = 50;

/// The size of the next page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    most: u32,
    next: u32,
    /// A page of this size failed: none grows to it again before a list was complete.
    failed_at: Option<u32>,
}

impl Pages {
    /// Pages of at most this many objects.
    pub(super) fn new(most: u32) -> Pages {
        Pages { most, next: FIRST_PAGE.min(most), failed_at: None }
    }

    /// How many objects the next page may have.
    pub(super) fn limit(&self) -> u32 {
        self.next
    }

    /// A page had this many objects, in this many octets: the next one has at most twice as many, and
    /// no more than fit if they are as large.
    pub(super) fn took(&mut self, objects: u32, octets: usize) {
        let each = octets / objects.max(1) as usize;
        let fit = u32::try_from(PAGE_OCTETS / each.max(1)).unwrap_or(u32::MAX);
        let grown = self.next.saturating_mul(2).min(self.largest());
        self.next = fit.clamp(1, grown);
    }

    /// A page was not read to its end; `is_begun`: it, or an earlier page of its list, had begun to arrive.
    pub(super) fn failed(&mut self, failure: &Failure, is_begun: bool) {
        match failure {
            // The list took longer than etcd keeps its version, 5 minutes: fewer requests.
            Failure::Status { code: 410, .. } => {
                self.next = self.next.saturating_mul(2).min(self.largest());
            }
            // Too large, or it took too long.
            Failure::Status { code: 413 | 500..=599, .. } | Failure::Garbage(_) => self.halve(),
            Failure::Link(_) if is_begun => self.halve(),
            // The failure has another reason than the size.
            Failure::Status { .. }
            | Failure::Link(_)
            | Failure::End
            | Failure::Silence
            | Failure::Relist => {}
        }
    }

    /// A list is complete: the sizes that failed are tried again.
    pub(super) fn complete(&mut self) {
        self.failed_at = None;
    }

    /// Larger than the half of a size that failed and smaller than that: a list that is too slow in small pages and too
    /// large in twice the size may be neither in between.
    fn largest(&self) -> u32 {
        let below = self.failed_at.map_or(self.most, |size| size - size / 4);
        below.clamp(1, self.most)
    }

    fn halve(&mut self) {
        self.failed_at = Some(self.next.min(self.failed_at.unwrap_or(u32::MAX)));
        self.next = (self.next / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

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
        let mut pages = Pages::new(500);
        assert_eq!(sizes(&mut pages, 1_500, 6), [50, 100, 200, 400, 500, 500]);
        assert_eq!(sizes(&mut pages, MIB, 3), [500, 8, 8]);
        assert_eq!(sizes(&mut pages, 10 * MIB, 3), [8, 1, 1]);
        assert_eq!(sizes(&mut pages, 1_500, 4), [1, 2, 4, 8]);
        assert_eq!(Pages::new(30).limit(), 30);
    }

    #[test]
    fn k23_a_page_that_fails_is_not_asked_for_again_in_the_same_size() {
        let status = |code| Failure::Status { code, message: String::new(), retry_after: None };
        let after = |failure: Failure, is_begun| {
            let mut pages = Pages::new(100);
            pages.failed(&failure, is_begun);
            pages.limit()
        };
        assert_eq!(after(status(504), false), 25);
        assert_eq!(after(status(413), false), 25);
        assert_eq!(after(Failure::Link("nothing came".into()), true), 25);
        assert_eq!(after(Failure::Garbage("not whole".into()), true), 25);
        assert_eq!(after(status(410), true), 100, "it took too long in all");
        for harmless in [status(403), status(429), Failure::Link("refused".into())] {
            assert_eq!(after(harmless, false), 50);
        }
        let mut pages = Pages::new(100);
        (0..20).for_each(|_| pages.failed(&status(500), false));
        assert_eq!(pages.limit(), 1);
    }

    #[test]
    fn k23_a_list_too_slow_in_small_pages_and_too_large_in_others_is_tried_between() {
        let status = |code| Failure::Status { code, message: String::new(), retry_after: None };
        let mut pages = Pages::new(400);
        let mut asked = Vec::new();
        for code in [504, 410, 410, 504, 410, 410] {
            asked.push(pages.limit());
            pages.failed(&status(code), false);
        }
        // A size that failed is not asked for again, also after other sizes.
        assert_eq!(asked, [50, 25, 38, 38, 19, 29]);
        pages.complete();
        pages.failed(&status(410), false);
        assert_eq!(pages.limit(), 58, "another list, another time");
    }
}

//! Refusals (HTTP 403) of what could be read before. An API server refuses once or twice what it has not read the rights of:
//! while it starts, and while aggregated roles change. So a refusal counts only after some of them in a row. Pure.

use std::time::{Duration, Instant};

/// Refusals in a row until they count.
const COUNTED_FROM: u32 = 3;
/// Time from the first of them to the last until they count.
const COUNTED_AFTER: Duration = Duration::from_secs(60);

/// Refusals of one object in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusals {
    count: u32,
    first: Option<Instant>,
}

impl Refusals {
    /// One more. True: there were enough of them for long enough, so they count. Before that, the object counts as not read.
    pub fn add(&mut self, now: Instant) -> bool {
        self.count = self.count.saturating_add(1);
        let first = *self.first.get_or_insert(now);
        self.count >= COUNTED_FROM && now.saturating_duration_since(first) >= COUNTED_AFTER
    }

    /// Another answer ends the row.
    pub fn end(&mut self) {
        *self = Refusals::default();
    }
}

/// Whether the API server refused this read.
pub fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 403)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k11_a_refusal_counts_after_three_in_a_row_over_a_minute() {
        let begin = Instant::now();
        let mut refusals = Refusals::default();
        let mut add = |seconds| refusals.add(begin + Duration::from_secs(seconds));
        assert!(!add(0) && !add(61), "two of them");
        assert!(add(62) && add(63), "all that follow");
        refusals.end();
        let mut add = |seconds| refusals.add(begin + Duration::from_secs(seconds));
        assert!(!add(100), "the row begins again");
        for second in 101..160 {
            assert!(!add(second), "{second}");
        }
        assert!(add(160));
        assert!(!Refusals { count: 9, first: Some(begin + Duration::from_secs(9)) }.add(begin));
    }
}

//! Few figures of a few runs (pure): the median, and how far apart the runs were. For many durations: how they are
//! distributed.

use std::time::Duration;

/// Several measurements of the same thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// Of these figures; nothing where there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (low, high) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            1 => figures[middle],
            _ => (figures[middle - 1] + figures[middle]) / 2.0,
        };
        Some(Spread { median, low, high })
    }

    /// `5.20 (5.10-5.60)`, or one number where all are equal.
    pub fn text(self, decimals: usize) -> String {
        let of = |figure: f64| format!("{figure:.decimals$}");
        let (median, low, high) = (of(self.median), of(self.low), of(self.high));
        if low == high { median } else { format!("{median} ({low}-{high})") }
    }
}

/// Many durations of one kind, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution(Vec<Duration>);

impl Distribution {
    /// Of these, in any order.
    pub fn of(durations: impl IntoIterator<Item = Duration>) -> Distribution {
        let mut all: Vec<Duration> = durations.into_iter().collect();
        all.sort();
        Distribution(all)
    }

    /// The shortest duration that this share of them does not exceed; nothing where there are none.
    pub fn at(&self, share: f64) -> Option<Duration> {
        let last = self.0.len().checked_sub(1)?;
        let rank = (self.0.len() as f64 * share).ceil() as usize;
        Some(self.0[rank.saturating_sub(1).min(last)])
    }

    /// `p50 / p99 / longest` in milliseconds; a dash where there are none.
    pub fn text(&self) -> String {
        let ms = |share: f64| self.at(share).map(|at| format!("{:.2}", at.as_secs_f64() * 1e3));
        let all: Option<Vec<String>> = [0.5, 0.99, 1.0].into_iter().map(ms).collect();
        all.map_or("-".into(), |all| all.join(" / "))
    }

    /// Points of its curve: milliseconds, and the share of them that took longer. The longest has no place there.
    pub fn slower(&self) -> Vec<(f64, f64)> {
        let count = self.0.len() as f64;
        let point = |(at, duration): (usize, &Duration)| {
            (duration.as_secs_f64() * 1e3, 1.0 - (at + 1) as f64 / count)
        };
        let points = self.0.iter().enumerate().map(point);
        points.filter(|(ms, share)| *ms > 0.0 && *share > 0.0).collect()
    }
}

/// Everything once in this order, and once in the opposite one: a drift during a pass has the same effect on each
/// (A B B A).
pub fn there_and_back<T: Clone>(all: &[T]) -> Vec<T> {
    all.iter().chain(all.iter().rev()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_the_ends_are_shown() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0]).map(|spread| spread.text(1)).as_deref(), Some("3.0"));
        let even = Spread::of([4.0, 1.0, 3.0, 2.0]).expect("figures");
        assert_eq!(even.text(2), "2.50 (1.00-4.00)");
        assert_eq!(Spread::of([9.0, 1.0, 2.0]).map(|spread| spread.median), Some(2.0));
    }

    #[test]
    fn a_quantile_is_one_of_the_durations_and_the_last_one_is_the_longest() {
        let hundred = Distribution::of((1..=100).rev().map(Duration::from_millis));
        let at = |share| hundred.at(share).map(|at| at.as_millis());
        assert_eq!([at(0.0), at(0.5), at(0.99), at(1.0)], [Some(1), Some(50), Some(99), Some(100)]);
        assert_eq!(hundred.text(), "50.00 / 99.00 / 100.00");
        assert_eq!(Distribution::default().at(0.5), None);
        assert_eq!(Distribution::default().text(), "-");
        assert_eq!(Distribution::of([Duration::from_micros(500)]).text(), "0.50 / 0.50 / 0.50");
    }

    #[test]
    fn a_curve_falls_from_all_to_the_last_but_one() {
        let four = Distribution::of([4, 1, 2, 3].map(Duration::from_millis));
        assert_eq!(four.slower(), [(1.0, 0.75), (2.0, 0.5), (3.0, 0.25)]);
        assert!(Distribution::of([Duration::ZERO; 2]).slower().is_empty(), "no logarithm");
    }

    #[test]
    fn a_drift_is_the_same_for_each_of_two_passes() {
        let order = there_and_back(&["a", "b", "c"]);
        assert_eq!(order, ["a", "b", "c", "c", "b", "a"]);
        let places = |name| {
            order.iter().enumerate().filter(|(_, at)| **at == name).map(|(n, _)| n).sum::<usize>()
        };
        assert_eq!((places("a"), places("b"), places("c")), (5, 5, 5));
    }
}

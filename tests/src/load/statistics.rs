//! Few figures of a few runs (pure): the median, and how far apart the runs were.

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
    fn a_drift_is_the_same_for_each_of_two_passes() {
        let order = there_and_back(&["a", "b", "c"]);
        assert_eq!(order, ["a", "b", "c", "c", "b", "a"]);
        let places = |name| {
            order.iter().enumerate().filter(|(_, at)| **at == name).map(|(n, _)| n).sum::<usize>()
        };
        assert_eq!((places("a"), places("b"), places("c")), (5, 5, 5));
    }
}

//! When each question is due (pure).

/// How fast questions are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pace {
    /// An open loop: a number of questions a second, evenly; it does not wait for replies.
    Rate(u32),
    /// A closed loop: a number of questions at once, the next when one was answered. It finds the most that a server answers; its
    /// latencies say nothing about users.
    Window(usize),
}

impl Pace {
    pub fn text(self) -> String {
        match self {
            Pace::Rate(per_s) if per_s % 1_000 == 0 => format!("{},000 q/s", per_s / 1_000),
            Pace::Rate(per_s) => format!("{per_s} q/s"),
            Pace::Window(window) => format!("{window} at once"),
        }
    }
}

const NS_PER_S: u64 = 1_000_000_000;

/// Times of queries at a constant rate.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    per_s: u64,
}

impl Schedule {
    /// This many a second; the first is due at once.
    ///
    /// # Panics
    /// None a second.
    pub fn new(per_s: u32) -> Schedule {
        assert!(per_s > 0, "a rate of nothing is never due");
        Schedule { per_s: per_s.into() }
    }

    /// Nanoseconds after the start when a question is due; the first has number 0.
    pub fn due_at(self, number: u64) -> u64 {
        // Seconds apart, so that the product fits for every number.
        let (seconds, rest) = (number / self.per_s, number % self.per_s);
        seconds * NS_PER_S + rest * NS_PER_S / self.per_s
    }

    /// How many are due at this time.
    pub fn due_by(self, ns: u64) -> u64 {
        let (seconds, rest) = (ns / NS_PER_S, ns % NS_PER_S);
        // The largest number whose time, rounded down, is not after `rest`.
        let within = ((rest + 1) * self.per_s).div_ceil(NS_PER_S);
        seconds * self.per_s + within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_by_a_time_is_what_is_due_at_or_before_it() {
        for per_s in [1, 3, 7, 1_000, 33_333, 400_000, 3_000_000] {
            let schedule = Schedule::new(per_s);
            for number in [0, 1, 2, 99, 12_345, 10_000_000] {
                let due = schedule.due_at(number);
                assert_eq!(schedule.due_by(due), number + 1, "{per_s} a second, number {number}");
                if due > 0 {
                    assert_eq!(schedule.due_by(due - 1), number, "{per_s} a second, {number}");
                }
            }
        }
    }

    #[test]
    fn a_day_of_questions_is_on_time_to_the_nanosecond() {
        let schedule = Schedule::new(30_000);
        assert_eq!(schedule.due_at(30_000 * 86_400), 86_400 * NS_PER_S);
        assert_eq!(schedule.due_at(1), 33_333);
    }
}

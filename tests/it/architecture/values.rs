//! The numbers on the pages are those of the constants. A test that computes with a constant passes with any value of it: a
//! time of a minute may become a day. So each number is written a second time, where people read it.

mod constants;

use super::{quoted, read};
use constants::{both, evaluate, values};

/// What a constant or a page says. Octets are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Number(i128),
    Nanoseconds(i128),
}

use Quantity::{Nanoseconds, Number};

/// Units of time, and of numbers.
const TIMES: [(&str, i128); 6] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("minutes", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("days", 86_400_000_000_000),
];
const SIZES: [(&str, i128); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Constants of limits that no reader of one expression can compute; the test beside each has its number.
const COMPUTED: [&str; 1] = ["crds/process/src/histogram/buckets.rs::MOST"];

/// Numbers of the contract that are no limits: the constant, the page, and the words there with its number.
const PROMISED: [(&str, &str, &str); 17] = [
    ("dataplane/src/forward/ports.rs::REST", RULES, "or were closed less than 30 s ago"),
    (
        "dataplane/src/forward/server/loops.rs::EVERY",
        RULES,
        "and every 60 s, each upstream of the default group is asked",
    ),
    (
        "dataplane/src/forward/server/edns.rs::WITHOUT",
        RULES,
        "each question of that probe was refused with OPT, no OPT to it for 15 minutes",
    ),
    (
        "dataplane/src/forward/server/edns.rs::SEEN_TWICE_IN",
        RULES,
        "twice within 60 s only the one without OPT",
    ),
    (
        "dataplane/core/src/relay/cache.rs::PREFETCH_MIN_TTL_S",
        RULES,
        "a hit on an entry whose original TTL was ≥ 10 s",
    ),
    ("dataplane/src/snapshot.rs::FRESH_S", RULES, "With a snapshot older than 5 min"),
    ("dataplane/src/drain.rs::UNREADY_AFTER", RULES, "only after 5 s"),
    ("dataplane/src/drain.rs::QUIET", RULES, "then until no query came for 1 s"),
    (
        "dataplane/udp/src/linux/stamps.rs::LONG",
        RULES,
        "until a batch is not full or that query waited for 1 s",
    ),
    (
        "dataplane/src/taps/dnstap/stream.rs::UNACKNOWLEDGED",
        OPERATING,
        "A reader whose machine is lost counts as gone after 30 s",
    ),
    (
        "operator/src/controller.rs::AGAIN",
        OPERATING,
        "Every pod is asked what it runs**, every 30 s",
    ),
    (
        "operator/src/decide/rollout.rs::RECONCILE_EVERY",
        OPERATING,
        "and every 2 s while a change is on its way",
    ),
    ("operator/src/controller/backoff.rs::FIRST", OPERATING, "and tried again after 1 s"),
    (
        "operator/src/observe/offers.rs::EVERY",
        "docs/metrics.md",
        "The operator looks every 5 minutes",
    ),
    (
        "operator/src/observe/pods/stuck.rs::DEADLINE",
        OPERATING,
        "or if it made no step for 10 minutes",
    ),
    (
        "operator/src/report/status/certificates.rs::EXPIRES_SOON",
        OPERATING,
        "less than 7 days left",
    ),
    ("operator/src/runtime/lease.rs::DURATION", "docs/benchmarks.md", "a lease of 15 s"),
];

/// Times of the contract that several constants keep together: their sum is no longer.
const KEPT_TOGETHER: [(&[&str], &str, &str); 4] = [
    (
        &["dataplane/src/source/files/watch.rs::RESOLV_CONF_INTERVAL"],
        RULES,
        "re-read within 5 s of a change",
    ),
    (
        &[
            "dataplane/src/source/api/heartbeat.rs::INTERVAL",
            "dataplane/src/source/api/heartbeat.rs::SILENCE",
            "dataplane/src/source/api/heartbeat.rs::QUIET",
        ],
        RULES,
        "A dead connection is noticed within 30 s",
    ),
    (
        &[
            "dataplane/src/snapshot/due.rs::RENEW_AFTER",
            "dataplane/src/snapshot/due.rs::BETWEEN_CONTACTS",
        ],
        RULES,
        "a quiet cluster's snapshot stays younger than the 5 min of E43",
    ),
    (
        &[
            "operator/src/runtime/lease.rs::RENEW_DEADLINE",
            "operator/src/runtime/lease.rs::ATTEMPT",
        ],
        "docs/benchmarks.md",
        "a lease of 15 s",
    ),
];

const RULES: &str = "docs/dns.md";
const OPERATING: &str = "docs/operating.md";

#[test]
fn every_number_on_the_page_of_limits_is_that_of_its_constant() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (says, places) in rows() {
        let mut said = quantities(&says);
        for place in places.iter().filter(|place| !COMPUTED.contains(&place.as_str())) {
            for value in values(place) {
                seen += 1;
                // The numbers are in the order of the constants. The page may say more, as what a bound is a part of.
                match said.iter().position(|(quantity, _)| *quantity == value) {
                    // "256 each": the same number is that of the next constant.
                    Some(at) if said[at].1 => drop(said.drain(..at)),
                    Some(at) => drop(said.drain(..=at)),
                    None => wrong.push(format!("{place} is {value:?}; its row says: {says}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 400, "{seen} values were compared");
}

#[test]
fn every_number_that_a_page_promises_is_that_of_its_constant() {
    for (place, page, words) in PROMISED {
        assert!(read(page).contains(words), "{page} does not say: {words}");
        let said: Vec<Quantity> = quantities(words).into_iter().map(|(said, _)| said).collect();
        assert_eq!(said, values(place), "{place}, and {page}: {words}");
    }
}

#[test]
fn constants_that_keep_a_time_together_are_no_longer_than_it() {
    for (places, page, words) in KEPT_TOGETHER {
        assert!(read(page).contains(words), "{page} does not say: {words}");
        let parts: Vec<Quantity> = places.iter().flat_map(|place| values(place)).collect();
        let sum = parts.into_iter().reduce(|sum, part| both(sum, part, |a, b| a + b));
        match (sum, &quantities(words)[..]) {
            (Some(Nanoseconds(sum)), [(Nanoseconds(most), _)]) => {
                assert!(sum <= *most, "{places:?} take {sum} ns; {page}: {words}");
            }
            (sum, said) => panic!("{places:?}: {sum:?} and {said:?}"),
        }
    }
}

#[test]
fn numbers_are_read_as_they_are_written() {
    let numbers = |text| quantities(text).into_iter().map(|(said, _)| said).collect::<Vec<_>>();
    assert_eq!(numbers("1,024, 96; 16 KiB"), [Number(1024), Number(96), Number(16 << 10)]);
    let times = [Nanoseconds(500_000_000), Nanoseconds(15_625_000), Number(4)];
    assert_eq!(numbers("0.5 s; 1/64 s; 1/4"), times);
    assert_eq!(numbers("10 MiB + 1 KiB, 8"), [Number((10 << 20) + 1024), Number(8)]);
    assert_eq!(evaluate("", "(2 + 3) * 4 << 1"), Number(40));
    assert_eq!(
        evaluate("", "Duration::from_secs(5 * 60).saturating_sub(Duration::from_millis(1))"),
        Nanoseconds(299_999_000_000)
    );
}

/// The rows of the tables of limits: what the second column says, and the constants of the third.
fn rows() -> Vec<(String, Vec<String>)> {
    let page = read("docs/limits.md");
    let (tables, _) = page.split_once("\n## Named like a limit, and nothing grows\n").unwrap();
    let rows = tables.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| What "));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, says, places] = cells[..] else { panic!("three columns: {row}") };
        (says.to_owned(), quoted(places).into_iter().map(str::to_owned).collect())
    })
    .collect()
}

/// The numbers of a text, each with whether it counts for several ("256 each"). A page writes `1,024`, `16 KiB`, `0.5 s`, a
/// sum as `10 MiB + 1 KiB`, and a part as `1/4`.
fn quantities(text: &str) -> Vec<(Quantity, bool)> {
    let mut found: Vec<(Quantity, bool)> = Vec::new();
    let words: Vec<&str> = text.split_whitespace().collect();
    let bare = |word: &str| word.trim_matches(|c: char| ",;.()*".contains(c)).to_owned();
    for (place, word) in words.iter().enumerate() {
        let Some((number, is_part)) = fraction(&bare(word)) else { continue };
        let (over, under) = number;
        let is_last = word.ends_with([',', ';', ')']);
        let next =
            words.get(place + 1).filter(|_| !is_last).map_or(String::new(), |next| bare(next));
        let unit = |units: &[(&str, i128)]| {
            units.iter().find(|(unit, _)| *unit == next).map(|(_, factor)| *factor)
        };
        let quantity = match (unit(&TIMES), unit(&SIZES)) {
            (Some(factor), _) => Nanoseconds(over * factor / under),
            (None, Some(factor)) => Number(over * factor / under),
            (None, None) if is_part => Number(under),
            (None, None) => Number(over / under),
        };
        let has_unit = unit(&TIMES).or(unit(&SIZES)).is_some();
        let behind =
            words.get(place + 1 + usize::from(has_unit)).map_or(String::new(), |w| bare(w));
        let is_shared = !is_last && behind == "each";
        match (place.checked_sub(1).map(|before| words[before]), found.last_mut(), quantity) {
            (Some("+"), Some((Number(sum), _)), Number(more)) => *sum += more,
            _ => found.push((quantity, is_shared)),
        }
    }
    found
}

/// A number as a fraction, and whether it is written as one.
fn fraction(word: &str) -> Option<((i128, i128), bool)> {
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let whole = |text: &str| text.replace(',', "").parse::<i128>().ok();
    if let Some((over, under)) = word.split_once('/') {
        return Some(((whole(over)?, whole(under)?), true));
    }
    match word.split_once('.') {
        Some((before, after)) => {
            let under = 10_i128.pow(u32::try_from(after.len()).ok()?);
            Some(((whole(before)? * under + whole(after)?, under), false))
        }
        None => Some(((whole(word)?, 1), false)),
    }
}

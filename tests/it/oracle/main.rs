//! K21: the core against a naive oracle of the rules, over random histories and questions: what is ours (A1 the zone, A3
//! reverse names, A4 extra records, A5 special names), the names in class CH (A51), and that each reply is made of one state
//! (E10).
//!
//! `PROPTEST_CASES=20000 cargo test -p tests --test oracle` runs for longer. A failure prints the
//! smallest history that shows it, the question, what the rules expect and what the core did.

mod universe;
mod configurations;
mod history;
mod questions;
mod subject;
mod arrival;
mod reach;
mod rules;
mod found;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use arrival::{Arrival, arrival};
use history::{Play, history};

fn config(cases: u32) -> ProptestConfig {
    let persistence = FileFailurePersistence::Direct("it/oracle/regressions.txt");
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(cases),
        failure_persistence: Some(Box::new(persistence)),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn k21_a1_a3_a4_a5_a51_e10_the_index_and_the_oracle_agree_at_every_step(history in history(10, 100)) {
        let outcome = Play::run(&history);
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }
}

proptest! {
    #![proptest_config(config(128))]

    #[test]
    fn k21_order_duplicates_and_resync_never_matter(arrival in arrival(60)) {
        let outcome = Arrival::run(&arrival);
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }
}

//! What is judged where the spec hides the names that are asked.

use super::*;

#[test]
fn o17_an_edit_passes_where_the_spec_hides_every_name_that_is_asked() {
    let mut observed = Observed { service: Some(own_service()), ..Observed::default() };
    observed.sample.namespaces =
        ["default", "kube-system", "shop"].map(|name| (name.to_owned(), Default::default())).into();
    observed.sample.selects = Some(true);
    let spec = |more: &str| {
        format!("{{exposure: {{namespaces: [shop]}}, upstreams: {{none: true}}{more}}}")
    };
    let (edited, before) = (spec(", ttlSeconds: 7"), spec(""));
    let outcomes = |canary: ResponseCode, stable: ResponseCode| -> Vec<CheckResult> {
        let asked = first(&edited, &before, &observed).into_iter().map(|question| Asked {
            question,
            canary: vec![reply(canary, &[], "")],
            stable: vec![reply(stable, &[], "")],
        });
        let asked: Vec<Asked> = asked.collect();
        let configs = (&config(&dns(&edited)), &config(&dns(&before)));
        let heard = (&asked[..], &Versions::default());
        let found = comparison("uid", "r", configs, &observed, heard, &Progress::default());
        found.checks.into_iter().map(|check| check.outcome).collect()
    };
    let (hidden, broken) = (ResponseCode::NXDomain, ResponseCode::ServFail);
    assert_eq!(outcomes(hidden, hidden), [CheckResult::Good]);
    // Whether clients had the name is not known.
    let unsure = outcomes(hidden, broken);
    assert!(matches!(unsure[..], [CheckResult::Warning(_)]), "{unsure:?}");
    assert_eq!(outcomes(broken, hidden), [CheckResult::Open]);
    assert_eq!(outcomes(broken, broken), [CheckResult::Open]);
}

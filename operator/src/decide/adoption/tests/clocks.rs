//! Times in rollout.json that a wrong clock, or another client, wrote there.

use super::*;

#[test]
fn o15_any_time_of_a_reset_is_compared_without_a_panic() {
    let now: jiff::Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
    let rows = [
        ("0001-01-01T00:00:00Z", 0),
        ("2026-01-01T06:00:00Z", 0),
        ("2026-01-01T06:00:01Z", 3),
        ("9999-12-30T22:00:00Z", 3),
    ];
    for (reset_at, resets) in rows {
        let mut observed = with(kube_dns());
        let mut plan = rollout::plan(&dns(ADOPT), &config(&dns(ADOPT)), &observed, now);
        plan.state.switch.is_made = true;
        (plan.state.switch.resets, plan.state.switch.reset_at) = (3, reset_at.to_owned());
        write(&mut observed, &plan);
        observed.service = Some(switched());
        assert_eq!(remember(&dns(ADOPT), &observed, now).resets, resets, "{reset_at}");
    }
}

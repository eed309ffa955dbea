//! O17: what keeps the operator from asking is reported, and is neither a failure of the configuration nor the loss of
//! its pod.

use std::process::Command;

use tests::control_plane::not_run;

use super::*;

const SECONDS: u32 = 5;

/// The system refuses to send questions to port 53 from here, as a firewall of the operator's own would.
fn questions_are(prohibited: bool) -> bool {
    let verb = if prohibited { "add" } else { "del" };
    let rule = ["rule", verb, "pref", "10", "ipproto", "udp", "dport", "53", "prohibit"];
    let done = Command::new("ip").args(rule).output().expect("ip runs");
    if !done.status.success() {
        not_run(&format!("rules by protocol and port (ip {}): {done:?}", rule.join(" ")));
    }
    done.status.success()
}

#[test]
fn o17_an_operator_that_cannot_ask_holds_the_trial_and_fails_nothing() {
    inside(async || {
        let Some(stage) = Stage::start().await else { return };
        let first = stable(&stage.scene).await;
        if !questions_are(true) {
            return;
        }
        stage.apply("192.0.2.2", &stage.good, SECONDS).await;
        let why = stage.scene.until_condition(NAME, "Degraded", "True", "CanaryUnreachable").await;
        for words in ["it cannot send to the pod", "UDP 53", "clusterdns.dev/instance=a"] {
            assert!(why.contains(words), "{why}");
        }
        // The time of the trial is over, and nothing was decided.
        let begun = stage.state().await["startedAt"].clone();
        tokio::time::sleep(Duration::from_secs(u64::from(SECONDS))).await;
        let looks = stage.scene.operator.reconciles();
        stage
            .scene
            .until("two more looks", async || {
                (stage.scene.operator.reconciles() >= looks + 2.0).then_some(())
            })
            .await;
        let state = stage.state().await;
        assert_eq!(state["startedAt"], begun, "{state}");
        assert_eq!((&state["failed"], &state["losses"]), (&Value::Null, &Value::Null), "{state}");
        assert_eq!(stable(&stage.scene).await, first);
        assert_eq!(stage.events("CanaryFailed").await, [] as [String; 0]);

        assert!(questions_are(false));
        stage.until_promoted(&first).await;
        stage.scene.until_condition(NAME, "Degraded", "False", "AsExpected").await;
    });
}

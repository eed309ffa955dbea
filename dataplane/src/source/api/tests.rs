//! How often snapshots are looked after, and how long a list waits.

use super::*;

#[tokio::test(start_paused = true)]
async fn e40_without_a_snapshot_to_write_there_is_a_step_a_second_and_one_at_the_end() {
    for next in [None, Some(snapshot::IDLE)] {
        let (end, ending) = channel::channel(false);
        let (mut steps, mut last) = (0, 0);
        let step = |is_last| {
            steps += 1;
            last += u32::from(is_last);
            next
        };
        let ended = async {
            tokio::time::sleep(Duration::from_millis(10_500)).await;
            end.send(true).unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            // Who would ask for the end is gone: that is no reason to step all the time.
            drop(end);
            tokio::time::sleep(Duration::from_secs(2)).await;
        };
        tokio::select! {
            () = step_until_dropped(step, ending) => {}
            () = ended => {}
        }
        assert_eq!((steps, last), (14, 3), "{next:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn k22_a_list_that_is_requested_does_not_wait_for_its_turn_unless_one_failed() {
    let (number, second) = (Resource::Pods as usize, Duration::from_secs(1));
    for (known, kind, waits_s) in [(Some(7), number, 1), (Some(7), 0, 15), (None, number, 15)] {
        let mut counts = [0; watched::KINDS];
        counts[number] = 7;
        let (requests, mut relists) = channel::channel(counts);
        let begun = tokio::time::Instant::now();
        let request = async {
            tokio::time::sleep(second).await;
            requests.send_modify(|counts| counts[kind] += 1);
        };
        tokio::join!(watch::pause(15 * second, &mut relists, number, known), request);
        assert_eq!(begun.elapsed().as_secs(), waits_s, "{known:?}, {kind}");
    }
}

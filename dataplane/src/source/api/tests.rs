//! How often snapshots are looked after.

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

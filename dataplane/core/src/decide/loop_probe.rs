//! The answer to a loop probe (A43, FW50): the label in front of our number, backwards. No other server gives it: neither one that
//! has the same text for every name, nor one that gives a name back.

use crate::wire::name::{MAX_LABEL, Name};

/// The text for a probe whose label in front of our number is this one, lower case; written to the buffer.
pub(crate) fn answer<'b>(label: &[u8], buffer: &'b mut [u8; MAX_LABEL]) -> &'b [u8] {
    let mut length = 0;
    for (octet, place) in label.iter().rev().zip(buffer.iter_mut()) {
        *place = *octet;
        length += 1;
    }
    buffer.get(..length).unwrap_or_default()
}

/// Whether one of our replicas gave this text as the answer to this probe, whose first label is in front of our number.
pub fn is_loop_answer(probe: &Name, text: &[u8]) -> bool {
    probe.labels().next().is_some_and(|label| label.iter().rev().eq(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a43_the_answer_is_the_label_backwards_and_belongs_to_one_probe() {
        let probe = |label: &str| Name::from_text(&format!("{label}.00.clusterdns-loop")).unwrap();
        let longest = "0123456789".repeat(7)[..63].to_owned();
        for label in ["a", "0f1e2d", &longest] {
            let backwards: String = label.chars().rev().collect();
            let mut buffer = [0; MAX_LABEL];
            assert_eq!(answer(label.as_bytes(), &mut buffer), backwards.as_bytes());
            assert!(is_loop_answer(&probe(label), backwards.as_bytes()));
            assert!(!is_loop_answer(&probe("0f1e2c"), backwards.as_bytes()));
        }
        assert!(!is_loop_answer(&probe("0f1e2d"), b"0f1e2d"), "an echo");
        assert!(!is_loop_answer(&Name::ROOT, b""));
    }
}

//! What a response says of the message in it.

use super::super::super::traffic::ServedOver;
use super::super::tests::{local, server};
use super::super::{Asker, UNKNOWN};
use super::*;
use crate::serve::Limits;

/// The reply to a question for the address of the root, which has one with a TTL of 60 s.
const MESSAGE: [u8; 32] = [
    0, 0, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0, // A header: one question, one answer.
    0, 0, 1, 0, 1, // The question.
    0, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1, // The answer.
];

#[test]
fn wr23_a_part_of_an_rrset_is_not_for_a_cache_of_http() {
    local(async {
        let (server, _) = server(Limits::default());
        let permit = server.table.admit_session(UNKNOWN.ip(), 0).expect("a place");
        let asker = Asker { client: UNKNOWN, server: UNKNOWN, over: ServedOver::Https };
        let requests = Requests::new(server, asker, permit, REQUEST_OCTETS);
        for (is_cut, expected) in [(false, "max-age=60"), (true, "max-age=0")] {
            let response = replied(Replied { message: MESSAGE.into(), is_cut }, requests.begin());
            assert_eq!(response.headers()[CACHE_CONTROL], expected);
        }
    });
}

//! Which questions of each socket wait for a reply, by message id (pure).

/// Questions of one socket that can wait at once, usually. One that is still waiting when its place is needed again counts as lost:
/// at 400,000 a second over 128 sockets that is after 0.16 s, at 10,000 after 6 s.
pub const PER_SOCKET: usize = 512;

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    due_ns: u64,
    sent_at: u64,
    question: u32,
    id: u16,
    is_waiting: bool,
}

/// A question that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Its number in the trace.
    pub question: u32,
    /// Nanoseconds after the start of the run when it was due.
    pub due_ns: u64,
    /// Nanoseconds since 1970 just before it was sent.
    pub sent_at: u64,
}

#[derive(Debug)]
pub struct Flights {
    places: Vec<Place>,
    per_socket: usize,
    next_ids: Vec<u16>,
    waiting: usize,
    lost: u64,
}

impl Flights {
    /// With room for this many questions of each socket.
    pub fn new(sockets: usize, per_socket: usize) -> Flights {
        Flights {
            places: vec![Place::default(); sockets * per_socket],
            per_socket,
            next_ids: vec![0; sockets],
            waiting: 0,
            lost: 0,
        }
    }

    /// A question leaves from a socket at this time since 1970; returns the id it must carry.
    pub fn depart(&mut self, socket: usize, question: u32, due_ns: u64, sent_at: u64) -> u16 {
        let id = self.next_ids[socket];
        self.next_ids[socket] = id.wrapping_add(1);
        let place = self.place(socket, id);
        let was_waiting = place.is_waiting;
        *place = Place { due_ns, sent_at, question, id, is_waiting: true };
        match was_waiting {
            true => self.lost += 1,
            false => self.waiting += 1,
        }
        id
    }

    /// A reply came to a socket; nothing when no question with this id waits there.
    pub fn arrive(&mut self, socket: usize, id: u16) -> Option<Flight> {
        let place = self.place(socket, id);
        if !place.is_waiting || place.id != id {
            return None;
        }
        place.is_waiting = false;
        let Place { question, due_ns, sent_at, .. } = *place;
        let flight = Flight { question, due_ns, sent_at };
        self.waiting -= 1;
        Some(flight)
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Gives up what still waits; returns how many were lost since the last call.
    pub fn give_up(&mut self) -> u64 {
        for place in &mut self.places {
            place.is_waiting = false;
        }
        std::mem::take(&mut self.lost) + std::mem::take(&mut self.waiting) as u64
    }

    fn place(&mut self, socket: usize, id: u16) -> &mut Place {
        &mut self.places[socket * self.per_socket + usize::from(id) % self.per_socket]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_finds_its_question_once_and_on_its_own_socket_only() {
        let mut flights = Flights::new(2, PER_SOCKET);
        let first = flights.depart(0, 7, 100, 1);
        let other = flights.depart(1, 8, 200, 2);
        assert_eq!((first, other, flights.waiting()), (0, 0, 2));
        assert_eq!(flights.arrive(1, 1), None, "never sent");
        assert_eq!(flights.arrive(0, first), Some(Flight { question: 7, due_ns: 100, sent_at: 1 }));
        assert_eq!(flights.arrive(0, first), None, "a second reply");
        assert_eq!(flights.arrive(1, other), Some(Flight { question: 8, due_ns: 200, sent_at: 2 }));
        assert_eq!((flights.waiting(), flights.give_up()), (0, 0));
    }

    #[test]
    fn a_place_that_is_needed_again_and_what_never_comes_are_lost() {
        let mut flights = Flights::new(1, PER_SOCKET);
        let first = flights.depart(0, 0, 0, 0);
        for question in 1..=PER_SOCKET as u32 {
            flights.depart(0, question, 0, 0);
        }
        assert_eq!(flights.arrive(0, first), None, "its place was taken");
        assert_eq!(flights.waiting(), PER_SOCKET);
        assert_eq!(flights.give_up(), 1 + PER_SOCKET as u64);
        assert_eq!(flights.give_up(), 0);
    }

    #[test]
    fn ids_go_around() {
        let mut flights = Flights::new(1, PER_SOCKET);
        for round in 0..3 * 65_536_u32 {
            let id = flights.depart(0, round, 0, 0);
            assert_eq!(u32::from(id), round % 65_536);
            assert_eq!(flights.arrive(0, id).map(|flight| flight.question), Some(round));
        }
        assert_eq!(flights.give_up(), 0);
    }
}

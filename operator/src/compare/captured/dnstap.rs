//! A dnstap file: Frame Streams (<https://farsightsec.github.io/fstrm/>) with a message in Protocol Buffers in each frame
//! (<https://github.com/dnstap/dnstap.pb>). Two fields of it are needed, so these are read by hand.

use super::cursor::Cursor;
use super::found::Captured;

/// The largest frame: a message of 65,535 octets and its metadata.
const MAX_FRAME: usize = 128 * 1024;
/// The control frame that ends a stream.
const STOP: [u8; 4] = [0, 0, 0, 3];
/// `Dnstap.message`.
const MESSAGE: u64 = 14;
/// `Message.type`, and its values for queries of clients: to a server, and to a resolver.
const KIND: u64 = 1;
const CLIENT_KINDS: [u64; 2] = [1, 5];
/// `Message.query_message`.
const QUERY: u64 = 10;

/// Reads all frames until the stream ends.
pub(super) fn read(octets: &[u8], captured: &mut Captured) -> Result<(), String> {
    let mut cursor = Cursor::new(octets);
    while !cursor.is_empty() {
        let at = cursor.at();
        let length = cursor.u32(false)? as usize;
        let is_control = length == 0;
        let length = if is_control { cursor.u32(false)? as usize } else { length };
        if length > MAX_FRAME {
            return Err(format!("the frame at octet {at} has {length} octets: it is damaged"));
        }
        let frame = cursor.take(length)?;
        match is_control {
            true if frame.starts_with(&STOP) => return Ok(()),
            true => {}
            false => match query(frame) {
                Some(query) => captured.message(query),
                None => captured.passed_over += 1,
            },
        }
    }
    Ok(())
}

/// The question of a client, if the frame has one.
fn query(frame: &[u8]) -> Option<&[u8]> {
    let Value::Octets(message) = field(frame, MESSAGE)? else { return None };
    let Value::Number(kind) = field(message, KIND)? else { return None };
    match field(message, QUERY)? {
        Value::Octets(query) if CLIENT_KINDS.contains(&kind) => Some(query),
        Value::Octets(_) | Value::Number(_) => None,
    }
}

/// The value of one field.
enum Value<'a> {
    Number(u64),
    Octets(&'a [u8]),
}

/// The first field of this number, if everything before it can be read.
fn field(message: &[u8], wanted: u64) -> Option<Value<'_>> {
    let mut rest = message;
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut rest)?),
            1 => Value::Octets(taken(&mut rest, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                Value::Octets(taken(&mut rest, length)?)
            }
            5 => Value::Octets(taken(&mut rest, 4)?),
            _ => return None,
        };
        if tag >> 3 == wanted {
            return Some(value);
        }
    }
    None
}

fn taken<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (octet, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

//! Frame Streams, as writers of dnstap speak it: the bidirectional handshake, then one frame for each message
//! (<https://farsightsec.github.io/fstrm/>). Numbers are big-endian.

use std::io::{self, ErrorKind, Read, Write};

pub(super) const CONTENT_TYPE: &[u8] = b"protobuf:dnstap.Dnstap";
/// The longest control frame that is read; ours have 34 octets.
const MAX_CONTROL: u32 = 512;
/// A control frame's field that names a content type.
const FIELD_CONTENT_TYPE: u32 = 1;

const ACCEPT: u32 = 1;
const START: u32 = 2;
const STOP: u32 = 3;
const READY: u32 = 4;
const FINISH: u32 = 5;

/// Offers our content type, waits until the reader accepts it, and starts.
///
/// # Errors
/// The connection fails, or the other side is not a reader of dnstap.
pub(super) fn open(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(&control(READY, true))?;
    let frame = read_control(stream)?;
    if !accepts(&frame) {
        return Err(io::Error::new(ErrorKind::InvalidData, "the reader does not accept dnstap"));
    }
    stream.write_all(&control(START, true))
}

/// Says that no more comes, and waits until the reader has everything.
///
/// # Errors
/// The connection fails before that.
pub(super) fn close(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(&control(STOP, false))?;
    match read_control(stream)?.first_chunk() {
        Some(kind) if u32::from_be_bytes(*kind) == FINISH => Ok(()),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "the reader does not finish")),
    }
}

/// Appends one frame; `write` appends its content.
pub(super) fn frame(to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.extend([0; 4]);
    write(to);
    let octets = to.len() - start - 4;
    to[start..start + 4].copy_from_slice(&(octets as u32).to_be_bytes());
}

fn control(kind: u32, with_content_type: bool) -> Vec<u8> {
    let mut content = kind.to_be_bytes().to_vec();
    if with_content_type {
        content.extend(FIELD_CONTENT_TYPE.to_be_bytes());
        content.extend((CONTENT_TYPE.len() as u32).to_be_bytes());
        content.extend(CONTENT_TYPE);
    }
    let mut frame = vec![0; 4];
    frame.extend((content.len() as u32).to_be_bytes());
    frame.extend(content);
    frame
}

/// The content of the next frame, which must be a control frame.
fn read_control(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let [escape, length] = [&head[..4], &head[4..]]
        .map(|octets| octets.iter().fold(0u32, |sum, octet| sum << 8 | u32::from(*octet)));
    if escape != 0 || !(4..=MAX_CONTROL).contains(&length) {
        return Err(io::Error::new(ErrorKind::InvalidData, "that is no reader of frame streams"));
    }
    let mut content = vec![0; length as usize];
    stream.read_exact(&mut content)?;
    Ok(content)
}

/// Whether this is an ACCEPT of our content type. One that names none accepts all.
fn accepts(content: &[u8]) -> bool {
    let Some((kind, mut fields)) = content.split_first_chunk::<4>() else { return false };
    if u32::from_be_bytes(*kind) != ACCEPT {
        return false;
    }
    let mut names_another = false;
    while let Some((field, rest)) = fields.split_first_chunk::<4>() {
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return false };
        let Some((value, rest)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)
        else {
            return false;
        };
        if u32::from_be_bytes(*field) == FIELD_CONTENT_TYPE {
            if value == CONTENT_TYPE {
                return true;
            }
            names_another = true;
        }
        fields = rest;
    }
    fields.is_empty() && !names_another
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that sends nothing more.
    struct Scripted {
        says: io::Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Scripted {
        fn new(says: &[u8]) -> Scripted {
            Scripted { says: io::Cursor::new(says.to_vec()), heard: Vec::new() }
        }
    }

    impl Read for Scripted {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.says.read(to)
        }
    }

    impl Write for Scripted {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.heard.write(from)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stream_opens_octet_for_octet_as_specified() {
        let accept = b"\0\0\0\0\0\0\0\x22\0\0\0\x01\0\0\0\x01\0\0\0\x16protobuf:dnstap.Dnstap";
        let mut reader = Scripted::new(accept);
        open(&mut reader).unwrap();
        let ready = b"\0\0\0\0\0\0\0\x22\0\0\0\x04\0\0\0\x01\0\0\0\x16protobuf:dnstap.Dnstap";
        let start = b"\0\0\0\0\0\0\0\x22\0\0\0\x02\0\0\0\x01\0\0\0\x16protobuf:dnstap.Dnstap";
        assert_eq!(reader.heard, [&ready[..], start].concat());
        let mut reader = Scripted::new(b"\0\0\0\0\0\0\0\x04\0\0\0\x05");
        close(&mut reader).unwrap();
        assert_eq!(reader.heard, b"\0\0\0\0\0\0\0\x04\0\0\0\x03");
    }

    #[test]
    fn what_is_no_reader_of_dnstap_gets_no_frames() {
        let rows: [&[u8]; 8] = [
            b"",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"\0\0\0\0\0\0\0\x04\0\0\0\x02",
            b"\0\0\0\0\0\0\0\x0d\0\0\0\x01\0\0\0\x01\0\0\0\x01x",
            b"\0\0\0\0\0\0\0\x0c\0\0\0\x01\0\0\0\x01\0\0\0\xff",
            b"\0\0\0\0\xff\xff\xff\xff\0\0\0\x01",
            b"\0\0\0\0\0\0\0\x02\0\0",
            b"\0\0\0\x08\0\0\0\x04\0\0\0\x01",
        ];
        for row in rows {
            let mut reader = Scripted::new(row);
            assert!(open(&mut reader).is_err(), "{row:?}");
            assert_eq!(reader.heard, control(READY, true), "{row:?}");
        }
        assert!(open(&mut Scripted::new(b"\0\0\0\0\0\0\0\x04\0\0\0\x01")).is_ok(), "any type");
    }

    #[test]
    fn a_frame_has_its_length_in_front() {
        let mut octets = vec![7];
        frame(&mut octets, |to| to.extend(b"abc"));
        assert_eq!(octets, b"\x07\0\0\0\x03abc");
    }
}

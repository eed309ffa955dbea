//! A snapshot from disk, at start: all of it is checked before any of it is believed (E41),
//! and only one object is in memory at a time.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crds::Config;
use dataplane_core::{KeptAs, Name, Object, Reads, Relist, Resource};
use sha2::{Digest, Sha256};

use super::format::{self, CHECKSUM, FORMAT, Head, Kept, MAGIC, MAX_FILE, MAX_HEAD, MAX_OBJECT};
use crate::settings;

/// Octets read at a time.
const BUFFER: usize = 64 << 10;

/// Why a snapshot is not used.
#[derive(Debug)]
pub enum Refusal {
    /// It cannot be read at all.
    Unreadable(io::Error),
    /// It does not begin as a snapshot does.
    Foreign,
    /// It has another format, of another version of this program.
    OtherFormat(u32),
    /// Larger than any this program writes.
    TooLarge(u64),
    /// Cut or changed since it was written.
    Damaged,
    /// It is intact, but not understood.
    Malformed(&'static str),
    /// Of a cluster with another domain.
    OtherDomain {
        /// The domain in the snapshot.
        snapshot: String,
        /// The cluster domain of the configuration.
        configuration: String,
    },
    /// Not confirmed for too long.
    TooOld {
        /// Seconds since it was confirmed.
        age_s: u64,
        /// `warmStart.maxAgeSeconds` of the configuration.
        max_age_s: u64,
    },
    /// The configuration reads parts of objects that were not kept.
    TooLittleKept,
    /// It has the configuration only.
    WithoutObjects,
    /// Something in it met a defect of this program.
    Panicked,
}

impl Refusal {
    /// True if no configuration can use the file: it is renamed. Otherwise another configuration might still read it,
    /// and the configuration in it is good at any age.
    pub fn is_final(&self) -> bool {
        match self {
            Refusal::Foreign
            | Refusal::OtherFormat(_)
            | Refusal::TooLarge(_)
            | Refusal::Damaged
            | Refusal::Malformed(_)
            | Refusal::Panicked => true,
            // A domain may be mistyped for one start.
            Refusal::OtherDomain { .. }
            | Refusal::Unreadable(_)
            | Refusal::TooOld { .. }
            | Refusal::TooLittleKept
            | Refusal::WithoutObjects => false,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unreadable(error) => write!(f, "it cannot be read: {error}"),
            Refusal::Foreign => f.write_str("it is not a snapshot of this program"),
            Refusal::OtherFormat(format) => {
                write!(f, "it has format {format}, and this version reads format {FORMAT}")
            }
            Refusal::TooLarge(octets) => {
                write!(f, "it has {octets} octets, and the largest that is read has {MAX_FILE}")
            }
            Refusal::Damaged => {
                f.write_str("it is damaged: its checksum is not that of its content")
            }
            Refusal::Malformed(what) => write!(f, "{what} is not understood"),
            Refusal::OtherDomain { snapshot, configuration } => write!(
                f,
                "it is of the cluster domain {snapshot}, and the configuration says {configuration}"
            ),
            Refusal::TooOld { age_s, max_age_s } => write!(
                f,
                "it was last confirmed {age_s} s ago, and warmStart.maxAgeSeconds is {max_age_s}"
            ),
            Refusal::TooLittleKept => f.write_str(
                "it was written under another exposure or endpointNames and has no labels or names \
                 that are read now",
            ),
            Refusal::WithoutObjects => f.write_str(
                "it has no objects that are read now: while warmStart.maxAgeSeconds is 0 only the configuration is written",
            ),
            Refusal::Panicked => f.write_str(
                "loading it panicked, which is a defect of ClusterDNS: please report it, with the log and that file",
            ),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        match error.kind() {
            // A length that is beyond the end: the file has become shorter since it was checked.
            io::ErrorKind::UnexpectedEof => Refusal::Damaged,
            _ => Refusal::Unreadable(error),
        }
    }
}

/// An intact snapshot, not yet loaded.
#[derive(Debug)]
pub struct Stored {
    head: Head,
    /// Size of the file.
    octets: u64,
    /// The offset of the first object.
    objects: BufReader<File>,
}

impl Stored {
    /// Opens and checks a file; `None` if there is none.
    ///
    /// # Errors
    /// When it is not an intact snapshot of this format.
    pub fn open(path: &Path) -> Result<Option<Stored>, Refusal> {
        let file = match process::bounded_file::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut file = BufReader::with_capacity(BUFFER, file);
        let length = file.get_ref().metadata()?.len();
        check(&mut file, length)?;
        file.seek(SeekFrom::Start((MAGIC.len() + 4) as u64))?;
        let mut head = Vec::new();
        if !framed(&mut file, MAX_HEAD, &mut head)? {
            return Err(Refusal::Malformed("its head"));
        }
        let head = serde_json::from_slice(&head).map_err(|_| Refusal::Malformed("its head"))?;
        Ok(Some(Stored { head, octets: length, objects: file }))
    }

    /// Size of the file.
    pub fn octets(&self) -> u64 {
        self.octets
    }

    /// Objects are missing that there was no room for.
    pub fn is_partial(&self) -> bool {
        self.head.is_partial
    }

    /// The configuration that ran when it was written (E46), checked again by this version.
    ///
    /// # Errors
    /// Why it cannot run any more.
    pub fn configuration(&self) -> Result<Config, crds::document::ConfigError> {
        Config::from_json(&self.head.configuration).map(|(config, _)| config)
    }

    /// The oldest confirmation of any object in it, in Unix seconds.
    pub fn confirmed_at_s(&self) -> Option<u64> {
        self.head.confirmed_at_s.values().min().copied()
    }

    /// Uid of the Namespace `kube-system` of its cluster.
    pub fn kube_system_uid(&self) -> Option<u128> {
        u128::from_str_radix(self.head.kube_system_uid.as_deref()?, 16).ok()
    }

    /// When each resource was confirmed, in Unix seconds and by [`Resource`], for those that this
    /// configuration reads and may use at this time. One that was confirmed in the future is young enough, and keeps its
    /// time: the clock may be behind at the start of a machine, and ages are right once it is not.
    ///
    /// # Errors
    /// When there are none.
    pub fn usable(
        &self,
        config: &Config,
        now_s: u64,
    ) -> Result<[Option<u64>; Resource::ALL.len()], Refusal> {
        if self.head.cluster_domain != config.domain {
            return Err(Refusal::OtherDomain {
                snapshot: self.head.cluster_domain.clone(),
                configuration: config.domain.clone(),
            });
        }
        let is_enough = settings::reads_of_objects(config).is_some_and(|new| {
            let kept = self.head.kept.reads(new.cluster_domain.clone());
            kept.relist_for(&new, KeptAs::Objects) == Relist::Nothing
        });
        if !is_enough {
            return Err(Refusal::TooLittleKept);
        }
        let max_age_s = u64::from(config.warm_start.max_age_seconds);
        let confirmed = Resource::ALL.map(|resource| {
            let at_s = self.head.confirmed_at_s.get(resource.plural());
            // What is not read is not listed either: it would stay forever, and grow old.
            at_s.filter(|_| settings::reads(config, resource)).copied()
        });
        let is_young = |at_s: &u64| now_s.saturating_sub(*at_s) < max_age_s;
        let usable = confirmed.map(|at_s| at_s.filter(is_young));
        if usable.iter().all(Option::is_none) {
            let newest = confirmed.iter().flatten().max();
            let newest = newest.ok_or(Refusal::WithoutObjects)?;
            return Err(Refusal::TooOld { age_s: now_s.saturating_sub(*newest), max_age_s });
        }
        Ok(usable)
    }

    /// Gives every object.
    ///
    /// # Errors
    /// When one is not understood; those before it have been given.
    pub fn objects(mut self, mut to: impl FnMut(Object)) -> Result<(), Refusal> {
        let mut octets = Vec::new();
        while framed(&mut self.objects, MAX_OBJECT, &mut octets)? {
            to(format::object(&octets).ok_or(Refusal::Malformed("an object"))?);
        }
        Ok(())
    }
}

impl Kept {
    /// The parts of objects that the index keeps under this configuration.
    pub(super) fn under(config: &Config) -> Kept {
        // A configuration in use has been checked; one that cannot be used keeps nothing.
        let Some(reads) = settings::reads_of_objects(config) else { return Kept::default() };
        let keys = |keys: &BTreeSet<Box<str>>| keys.iter().map(ToString::to_string).collect();
        Kept {
            namespace_labels: keys(&reads.namespace_labels),
            service_labels: keys(&reads.service_labels),
            pod_names: reads.pod_names,
        }
    }

    /// The same for comparison, with the cluster domain that the snapshot is of.
    fn reads(&self, cluster_domain: Name) -> Reads {
        let keys = |keys: &[String]| keys.iter().map(|key| key.as_str().into()).collect();
        Reads {
            namespace_labels: keys(&self.namespace_labels),
            service_labels: keys(&self.service_labels),
            pod_names: self.pod_names,
            cluster_domain,
        }
    }
}

/// Magic, format and checksum of the whole.
fn check(file: &mut BufReader<File>, length: u64) -> Result<(), Refusal> {
    let mut magic = [0; MAGIC.len()];
    let mut format = [0; 4];
    // Too short for any snapshot. A disk that fails says nothing about the file.
    let foreign = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Refusal::Foreign,
        _ => Refusal::from(error),
    };
    file.read_exact(&mut magic).map_err(foreign)?;
    file.read_exact(&mut format).map_err(foreign)?;
    if magic != *MAGIC {
        return Err(Refusal::Foreign);
    }
    if u32::from_le_bytes(format) != FORMAT {
        return Err(Refusal::OtherFormat(u32::from_le_bytes(format)));
    }
    if length > MAX_FILE {
        return Err(Refusal::TooLarge(length));
    }
    let mut hash = Sha256::new();
    hash.update(magic);
    hash.update(format);
    let hashed = (magic.len() + format.len()) as u64;
    let rest = length.checked_sub(hashed + CHECKSUM as u64).ok_or(Refusal::Damaged)?;
    let mut content = file.by_ref().take(rest);
    let mut buffer = vec![0; BUFFER];
    loop {
        match content.read(&mut buffer)? {
            0 => break,
            octets => hash.update(&buffer[..octets]),
        }
    }
    let mut checksum = [0; CHECKSUM];
    file.read_exact(&mut checksum)?;
    if checksum[..] == hash.finalize()[..] { Ok(()) } else { Err(Refusal::Damaged) }
}

/// The next octets with a length before them, in place of those in `octets`; false at the end of the objects.
fn framed(from: &mut impl Read, most: usize, octets: &mut Vec<u8>) -> Result<bool, Refusal> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        return Err(Refusal::Malformed("a length"));
    }
    octets.resize(length, 0);
    from.read_exact(octets)?;
    Ok(length > 0)
}

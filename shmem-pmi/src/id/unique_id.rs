//! The id of a job: a key, and where its processes meet.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use shmem_node::contract::{hex, unhex};
use shmem_node::sys;

use super::auth::Key;

const MAGIC: [u8; 4] = *b"SHID";
const VERSION: u8 = 1;
/// Bytes before the name of the host: magic, version, who listens, port, key, length of the name.
const HEAD: usize = 4 + 1 + 1 + 2 + Key::LEN + 1;

/// Who listens where an id says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// The process that made the id, from then on.
    Maker,
    /// PE 0, from its init on.
    FirstPe,
}

/// The id of a job that is started without a launcher.
///
/// **It is a secret**: who has it can join the job, and forge connections to its PEs. `Debug` does not
/// show the key; [`UniqueId::to_text`] and [`UniqueId::to_bytes`] do.
#[derive(Clone)]
pub struct UniqueId {
    key: Key,
    listener: Listener,
    host: String,
    port: u16,
}

/// Text or bytes that are no id. What they are is not told, since it may be most of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// Text of other characters, or of an odd number of them.
    #[error("an id is written in hexadecimal digits, two for each byte, and this is not")]
    NotHex,
    /// Not as long as it says.
    #[error("an id of {len} bytes; it was cut, or something was added to it")]
    Length {
        /// How long it is.
        len: usize,
    },
    /// Bytes of something else.
    #[error("these bytes are not those of an id")]
    Foreign,
    /// An id of another release.
    #[error("an id of version {version}, and this library knows version {VERSION}")]
    Version {
        /// Version of the id.
        version: u8,
    },
    /// A host or port that cannot be.
    #[error(
        "no host with the name in it can be connected to: {} of 1 to {} letters, digits, dots, dashes and colons, and a port from 1 to 65535 are",
        "names",
        UniqueId::HOST_MAX
    )]
    Host,
}

impl UniqueId {
    /// Bytes of an id, however long the name of its host.
    pub const LEN: usize = 128;
    /// Bytes of the longest name of a host.
    pub const HOST_MAX: usize = Self::LEN - HEAD;

    /// A new key for a meeting at `host` and `port`.
    pub(super) fn random(listener: Listener, host: &str, port: u16) -> Result<Self, MakeError> {
        let mut key = [0; Key::LEN];
        sys::random(&mut key).map_err(|source| MakeError::Os {
            what: "read random bytes",
            source,
        })?;
        Ok(Self::with_key(Key::new(key), listener, host, port)?)
    }

    fn with_key(key: Key, listener: Listener, host: &str, port: u16) -> Result<Self, IdError> {
        let fits = (1..=Self::HOST_MAX).contains(&host.len());
        let is_name = |c: u8| c.is_ascii_alphanumeric() || b".-_:%".contains(&c);
        if !fits || !host.bytes().all(is_name) || port == 0 {
            return Err(IdError::Host);
        }
        Ok(Self {
            key,
            listener,
            host: host.to_owned(),
            port,
        })
    }

    /// An id of a new key. **PE 0 listens** at `host` and `port`, an address or a name that the other
    /// processes resolve, from its init on; this process need not go on.
    ///
    /// # Errors
    /// A host or port that cannot be; the system gives no random bytes.
    pub fn at(host: &str, port: u16) -> Result<Self, MakeError> {
        Self::random(Listener::FirstPe, host, port)
    }

    /// As [`UniqueId::at`], with a key that everybody who knows `secret` makes for himself. It is as hard to
    /// guess as the secret is. Jobs of one secret have different keys if they meet at different places, or what
    /// names them, `run`, differs: they must not take each other's processes and messages for their own.
    ///
    /// # Errors
    /// A host or port that cannot be.
    pub fn from_secret(secret: &str, host: &str, port: u16, run: &[&str]) -> Result<Self, IdError> {
        let digits = port.to_string();
        let parts: Vec<&[u8]> = [host, &digits]
            .iter()
            .chain(run)
            .map(|part| part.as_bytes())
            .collect();
        let key = Key::from_secret(secret.as_bytes()).derive("job", &parts);
        Self::with_key(key, Listener::FirstPe, host, port)
    }

    /// The fixed number of bytes that any channel carries.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = match self.listener {
            Listener::Maker => 0,
            Listener::FirstPe => 1,
        };
        bytes[6..8].copy_from_slice(&self.port.to_be_bytes());
        bytes[8..HEAD - 1].copy_from_slice(self.key.bytes());
        bytes[HEAD - 1] = self.host.len() as u8;
        bytes[HEAD..HEAD + self.host.len()].copy_from_slice(self.host.as_bytes());
        bytes
    }

    /// The id that was made into these bytes.
    ///
    /// # Errors
    /// The bytes are not those of an id.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, IdError> {
        if bytes[..4] != MAGIC {
            return Err(IdError::Foreign);
        }
        if bytes[4] != VERSION {
            return Err(IdError::Version { version: bytes[4] });
        }
        let listener = match bytes[5] {
            0 => Listener::Maker,
            1 => Listener::FirstPe,
            _ => return Err(IdError::Foreign),
        };
        let end = HEAD + usize::from(bytes[HEAD - 1]);
        if end > Self::LEN || bytes[end..].iter().any(|&b| b != 0) {
            return Err(IdError::Length { len: Self::LEN });
        }
        let host = std::str::from_utf8(&bytes[HEAD..end]).map_err(|_| IdError::Host)?;
        let mut key = [0; Key::LEN];
        key.copy_from_slice(&bytes[8..HEAD - 1]);
        let port = u16::from_be_bytes([bytes[6], bytes[7]]);
        Self::with_key(Key::new(key), listener, host, port)
    }

    /// The id as text without blanks: hexadecimal digits. `parse` makes it an id again.
    pub fn to_text(&self) -> String {
        hex(&self.to_bytes()[..HEAD + self.host.len()])
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Who listens.
    pub fn listener(&self) -> Listener {
        self.listener
    }

    /// Host and port at which the processes of the job meet.
    pub fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The job's name and key in messages between its PEs, which all who have the id derive from it.
    pub fn identity(&self) -> ([u8; 16], [u8; 32]) {
        let name = self.key.mac("name of the job", &[]);
        let (name, _) = name.split_first_chunk().expect("32 bytes");
        (*name, self.key.mac("key of the job's PEs", &[]))
    }

    /// What tells this job from others of this machine.
    pub(super) fn job_name(&self) -> String {
        hex(&self.identity().0)
    }
}

/// `HOST:PORT`, with brackets around an IPv6 address.
pub(super) struct At<'a>(pub(super) &'a str, pub(super) u16);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.parse() {
            Ok(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.1),
            _ => write!(f, "{}:{}", self.0, self.1),
        }
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = At(&self.host, self.port);
        write!(f, "UniqueId(at {at}, key withheld)")
    }
}

impl FromStr for UniqueId {
    type Err = IdError;

    /// What [`UniqueId::to_text`] gave, blanks around it apart.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let read = unhex(text.trim().as_bytes()).ok_or(IdError::NotHex)?;
        let len = read.len();
        if !(HEAD..=Self::LEN).contains(&len) {
            return Err(match read.starts_with(&MAGIC) {
                true => IdError::Length { len },
                false => IdError::Foreign,
            });
        }
        let mut bytes = [0; Self::LEN];
        bytes[..len].copy_from_slice(&read);
        let id = Self::from_bytes(&bytes)?;
        match HEAD + id.host.len() == len || len == Self::LEN {
            true => Ok(id),
            false => Err(IdError::Length { len }),
        }
    }
}

/// An id cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// The host does not do.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Nobody can listen there.
    #[error("cannot listen at {at}: {source}")]
    Listen {
        /// Where.
        at: String,
        /// Why.
        source: std::io::Error,
    },
    /// The operating system refused something.
    #[error("cannot {what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(host: &str) -> UniqueId {
        UniqueId::at(host, 4711).unwrap()
    }

    #[test]
    fn an_id_comes_back_from_text_and_bytes() {
        for host in [
            "127.0.0.1",
            "fe80::1%eth0",
            "a",
            &"h".repeat(UniqueId::HOST_MAX),
        ] {
            let id = id(host);
            let read: UniqueId = format!(" {}\n", id.to_text()).parse().unwrap();
            assert_eq!(read.to_bytes(), id.to_bytes());
            assert_eq!(read.address(), (host, 4711));
            assert_eq!(read.identity(), id.identity());
            // Programs of C print the bytes as they are.
            let all: UniqueId = hex(&id.to_bytes()).parse().unwrap();
            assert_eq!(all.to_bytes(), id.to_bytes());
        }
    }

    #[test]
    fn keys_differ_and_are_not_shown() {
        let (one, other) = (id("::1"), id("::1"));
        assert_ne!(one.to_bytes(), other.to_bytes());
        assert_ne!(one.identity(), other.identity());
        let shown = format!("{one:?}");
        assert_eq!(shown, "UniqueId(at [::1]:4711, key withheld)");
        assert!(!shown.contains(&hex(one.key.bytes())[..8]));
        let of = |secret, host, port, run: &[&str]| {
            let id = UniqueId::from_secret(secret, host, port, run);
            id.unwrap().identity()
        };
        let one = of("s", "a", 1, &["r", "0"]);
        assert_eq!(one, of("s", "a", 1, &["r", "0"]));
        for other in [
            of("t", "a", 1, &["r", "0"]),
            of("s", "b", 1, &["r", "0"]),
            of("s", "a", 2, &["r", "0"]),
            of("s", "a", 1, &["q", "0"]),
            of("s", "a", 1, &["r", "1"]),
        ] {
            assert_ne!(other, one);
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let text = id("node7").to_text();
        let error = |text: &str| text.parse::<UniqueId>().unwrap_err();
        assert_eq!(error("hello"), IdError::NotHex);
        assert_eq!(error(&text[1..]), IdError::NotHex);
        assert_eq!(error(""), IdError::Foreign);
        assert_eq!(error(&text[2..]), IdError::Foreign);
        let cut = &text[..text.len() - 2];
        assert!(matches!(error(cut), IdError::Length { .. } | IdError::Host));
        assert!(matches!(error(&text[..20]), IdError::Length { len: 10 }));
        assert!(matches!(
            error(&(text.clone() + "00")),
            IdError::Length { .. }
        ));
        assert!(matches!(
            error(&(text.clone() + "61")),
            IdError::Length { .. }
        ));
        assert!(matches!(error(&"00".repeat(129)), IdError::Foreign));
        let later = format!("{}02{}", &text[..8], &text[10..]);
        assert_eq!(error(&later), IdError::Version { version: 2 });
        for host in ["", "a b", "ä", &"h".repeat(UniqueId::HOST_MAX + 1)] {
            assert!(UniqueId::at(host, 1).is_err(), "{host}");
        }
        assert!(UniqueId::at("a", 0).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_are_no_id_or_come_back(bytes in prop::array::uniform32(any::<u8>()),
                tail in prop::array::uniform32(any::<u8>()), good in 0usize..9) {
            let mut all = [0; UniqueId::LEN];
            all[..32].copy_from_slice(&bytes);
            all[32..64].copy_from_slice(&tail);
            let valid = id("node7.cluster").to_bytes();
            all[..good].copy_from_slice(&valid[..good]);
            if let Ok(id) = UniqueId::from_bytes(&all) {
                prop_assert_eq!(id.to_bytes(), all);
            }
        }

        #[test]
        fn random_text_does_not_panic(text in ".{0,300}") {
            let _ = text.parse::<UniqueId>();
        }
    }
}

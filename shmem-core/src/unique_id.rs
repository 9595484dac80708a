//! The id by which processes become a job without a launcher.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use shmem_node::hca_address::AddressChoice;
use shmem_node::own_address::{self, Hints};
use shmem_node::settings::Settings;
use shmem_pmi::id::{self, IdError, MakeError};

use crate::error::Error;

/// What processes share that become a job without a launcher: a key of 256 bits, and where they meet. See
/// [`init_from`](crate::init_from).
///
/// One process makes it and hands it to the others by whatever channel there is, as [text](UniqueId::to_text) or
/// [bytes](UniqueId::to_bytes). **It is a secret**: whoever has it can join the job. `Debug` does not show the key. An id is for one
/// job.
///
/// * [`UniqueId::new`]: the process that makes the id listens for the others, as PE 0 mostly does that broadcasts it, or a
///   parent that starts the PEs. It must live until all PEs have finalized.
/// * [`UniqueId::at`]: anybody makes the id for a known host and port; PE 0 listens there. For environments that know where
///   PE 0 will run and nothing else, such as Kubernetes.
///
/// Debug output and errors never show the key:
///
/// ```
/// let id = shmem::UniqueId::at("node1.cluster", 4711)?;
/// let text = id.to_text(); // to a file, a variable, a key-value store
/// let same: shmem::UniqueId = text.parse()?;
/// assert_eq!(same.to_bytes(), id.to_bytes());
/// assert_eq!(format!("{id:?}"), "UniqueId(at node1.cluster:4711, key withheld)");
/// # Ok::<(), shmem::Error>(())
/// ```
#[derive(Clone)]
pub struct UniqueId(pub(crate) id::UniqueId);

fn launch(e: &dyn fmt::Display) -> Error {
    Error::Launch(format!("the id of a job: {e}"))
}

impl From<IdError> for Error {
    fn from(e: IdError) -> Self {
        launch(&e)
    }
}

impl From<MakeError> for Error {
    fn from(e: MakeError) -> Self {
        launch(&e)
    }
}

impl UniqueId {
    /// Bytes of [`UniqueId::to_bytes`].
    pub const LEN: usize = id::UniqueId::LEN;

    /// Makes an id of whose job this process is the meeting place: a thread of it listens at a TCP port that the system
    /// chooses, from now on, and lets in processes that have the id. The address is the one at which other machines reach this one, or a
    /// loopback address if there is none; `SHMEM_SOFT_ADDRESS` says otherwise, and so does [`UniqueId::on`].
    ///
    /// The job ends when this process does, with a message, unless all PEs have finalized by then. If this process is one
    /// of the PEs, its exit waits for the others' finalize, up to 30 s.
    ///
    /// # Errors
    /// `SHMEM_SOFT_ADDRESS` names no address of this machine; the system refuses a socket, a thread or random bytes.
    pub fn new() -> Result<Self, Error> {
        let settings = Settings::from_env()?;
        let address = match settings.soft_address {
            AddressChoice::Auto => own_address::find(&Hints::default()),
            AddressChoice::Shared(ip) | AddressChoice::From(ip) => ip,
            AddressChoice::Network(network) => {
                own_address::within(network, "this machine").map_err(Error::Launch)?
            }
        };
        Self::make(address, &settings)
    }

    /// As [`UniqueId::new`], at an address of this machine: the loopback address for a job that stays on it, or one of
    /// the network that all machines of the job have.
    ///
    /// # Errors
    /// As there.
    pub fn on(address: IpAddr) -> Result<Self, Error> {
        Self::make(address, &Settings::from_env()?)
    }

    fn make(address: IpAddr, settings: &Settings) -> Result<Self, Error> {
        Ok(Self(id::UniqueId::on(address, settings.init_timeout)?))
    }

    /// Makes an id of whose job **PE 0** will be the meeting place, at TCP port `port` of `host`: an address, or a name that
    /// all processes resolve. Nothing of this process is needed any more.
    ///
    /// # Errors
    /// A name that no host can have, or of more than 87 bytes; port 0; the system gives no random bytes.
    pub fn at(host: &str, port: u16) -> Result<Self, Error> {
        Ok(Self(id::UniqueId::at(host, port)?))
    }

    /// The id as [`UniqueId::LEN`] bytes, for channels of fixed length such as `MPI_Bcast`.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        self.0.to_bytes()
    }

    /// The id of these bytes.
    ///
    /// # Errors
    /// They are none of [`UniqueId::to_bytes`], or of another version.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, Error> {
        Ok(Self(id::UniqueId::from_bytes(bytes)?))
    }

    /// The id as hexadecimal digits, 256 at most, which `parse` takes.
    pub fn to_text(&self) -> String {
        self.0.to_text()
    }
}

impl FromStr for UniqueId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self(text.parse()?))
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

//! From what `open_xrcd` is given to a domain of the engine.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use crate::engine::Engine;
use crate::memory::mr::Memory;
use crate::xrc::{MappedTable, Member, Private, SharedWindow, file_id};
use shmem_verbs::{VerbsError, Xrcd};

/// Opens the domain of a file, or a private one.
pub(super) fn open<M: Memory>(
    engine: &mut Engine<M>,
    domain: Option<BorrowedFd<'_>>,
    window: SharedWindow,
) -> Result<Xrcd, VerbsError> {
    let Some(file) = domain else {
        return engine.open_xrcd(Box::<Private>::default(), None);
    };
    let failed = |source| VerbsError::Io {
        what: "cannot open the file of an XRC domain".into(),
        source,
    };
    let id = file_id(file).map_err(failed)?;
    if let Some(xrcd) = engine.reopen_xrcd(id) {
        return Ok(xrcd);
    }
    let table = MappedTable::open(file).map_err(failed)?;
    match Member::join(table, window)? {
        Some(member) => engine.open_xrcd(Box::new(member), Some(id)),
        None => Err(failed(io::Error::new(
            io::ErrorKind::InvalidData,
            "it holds something else than a domain of this version",
        ))),
    }
}

//! What ties this process to its job, from its first init to its end.
//!
//! The launch agent left it (descriptors, a place in the node's memory) to be taken once; everything else
//! is made anew by each outermost init.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use shmem_node::segment::NodeView;

use crate::error::Error;
use crate::pmi::Pmi;
use crate::tree::MAX_PES;

/// A process that belongs to a job, or did.
pub(crate) struct Attached {
    /// Number of this PE.
    pub(crate) me: usize,
    /// Position of this PE among its node's.
    pub(crate) local: usize,
    pub(crate) node: NodeView,
    /// The file of the node's heaps.
    pub(crate) heap: OwnedFd,
    /// The file of the node's XRC domain.
    pub(crate) xrc: Option<OwnedFd>,
    /// The way to the process manager.
    pub(crate) pmi: Pmi,
    /// Whether it is between init and finalize.
    is_pe: AtomicBool,
}

static ATTACHED: OnceLock<Attached> = OnceLock::new();

/// What ties this process to its job, if it has ever begun an init.
pub(crate) fn attached() -> Option<&'static Attached> {
    ATTACHED.get()
}

/// What ties this process to its job, which `attach` finds out when this is called first.
pub(super) fn attached_or(
    attach: impl FnOnce() -> Result<Attached, Error>,
) -> Result<&'static Attached, Error> {
    match ATTACHED.get() {
        Some(attached) => Ok(attached),
        None => {
            let found = attach()?;
            Ok(ATTACHED.get_or_init(|| found))
        }
    }
}

impl Attached {
    pub(super) fn new(
        me: usize,
        node: NodeView,
        heap: OwnedFd,
        xrc: Option<OwnedFd>,
        pmi: Pmi,
    ) -> Self {
        Self {
            me,
            local: node.local_of()[me] as usize,
            node,
            heap,
            xrc,
            pmi,
            is_pe: AtomicBool::new(false),
        }
    }

    /// Whether this process is the PE, and not one that it has forked.
    pub(crate) fn is_own_process(&self) -> bool {
        self.node.pe_block(self.local).pid() == std::process::id()
    }

    fn is_pe(&self) -> bool {
        self.is_pe.load(Ordering::Acquire)
    }
}

/// This process has become a PE, or is none any more.
pub(crate) fn set_pe(is_pe: bool) {
    if let Some(attached) = attached() {
        attached.is_pe.store(is_pe, Ordering::Release);
        if !is_pe {
            attached.pmi.leave(|| attached.is_own_process());
        }
    }
}

/// The process exits with `status`, whether or not it is a PE.
pub(crate) fn process_exits(status: i32) {
    if let Some(attached) = attached() {
        attached.pmi.process_exits(status, attached.is_pe());
    }
}

/// Whether the launcher ends this process, with the job, once it hears of the process's exit.
pub(crate) fn exit_ends_job() -> bool {
    attached().is_some_and(|attached| attached.is_pe() && attached.pmi.ends_job_at_exit())
}

/// Whether a job can have so many PEs.
pub(super) fn check_size(n_pes: usize) -> Result<(), Error> {
    match n_pes > MAX_PES {
        true => Err(Error::Launch(format!(
            "{n_pes} PEs are more than the {MAX_PES} that this version supports"
        ))),
        false => Ok(()),
    }
}

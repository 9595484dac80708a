//! Where the operations of a context go, and under which number.

use shmem_ib::connect::endpoint::{Context, ContextId, Endpoint};
use shmem_ib::device::Device;

use super::branches::Branch;

/// Operations of the network, under the number of a context.
pub(crate) type Operations<'a> = Context<'a, Device>;

/// The endpoint or branch that a context uses, and the context's number there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    id: ContextId,
    branch: Option<&'static Branch>,
}

impl Stream {
    /// Of the runtime's own messages: a program's quiet has nothing to do with them. 0 is the default context.
    pub(crate) const RUNTIME: Self = Self::new(ContextId::new(1), None);

    /// Of the context with this number, on its branch or else on the endpoint that all share.
    pub(crate) const fn new(id: ContextId, branch: Option<&'static Branch>) -> Self {
        Self { id, branch }
    }

    /// The context's number.
    pub(crate) const fn id(&self) -> ContextId {
        self.id
    }

    /// The branch that is the context's own, if it has one.
    #[inline]
    pub(crate) const fn branch(&self) -> Option<&'static Branch> {
        self.branch
    }

    /// The operations, by this PE's endpoint or a branch of it.
    #[inline]
    pub(crate) fn on<'a>(&self, main: &'a Endpoint<Device>) -> Operations<'a> {
        let endpoint = match self.branch {
            None => main,
            Some(branch) => &branch.endpoint,
        };
        endpoint.context(self.id)
    }
}

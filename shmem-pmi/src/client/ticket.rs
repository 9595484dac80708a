//! The two ends of a call that has been made: who called keeps the [`Ticket`], the client keeps what
//! takes the reply. The call's type decides both, so nobody is given the reply to another call.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Refusal;
use super::calls::Call;
use crate::wire::Reply;

/// What came of a call: its reply, or that the server refused it or the operation failed.
pub type Outcome<R> = Result<R, Refusal>;

/// The outcome of one call, once it has come. Who drops it does not want to know.
#[derive(Debug)]
pub struct Ticket<R> {
    mark: u64,
    slot: Arc<Slot<R>>,
}

struct Slot<R> {
    read: fn(Reply<'_>) -> Option<R>,
    outcome: Mutex<Option<Outcome<R>>>,
}

impl<R> Slot<R> {
    fn lock(&self) -> MutexGuard<'_, Option<Outcome<R>>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> fmt::Debug for Slot<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settled = self.lock().is_some();
        f.debug_struct("Slot").field("settled", &settled).finish()
    }
}

/// The client's end of a [`Ticket`].
pub(super) trait Settle: fmt::Debug + Send + Sync {
    /// Hands over the outcome; `false` if it is no reply to the call.
    fn settle(&self, outcome: Outcome<Reply<'_>>) -> bool;
}

impl<R: Send> Settle for Slot<R> {
    fn settle(&self, outcome: Outcome<Reply<'_>>) -> bool {
        let outcome = match outcome.map(self.read) {
            Ok(None) => return false,
            Ok(Some(reply)) => Ok(reply),
            Err(refusal) => Err(refusal),
        };
        *self.lock() = Some(outcome);
        true
    }
}

impl<R: Send + 'static> Ticket<R> {
    /// The ticket of a call, under a number of which the client has no other.
    pub(super) fn of<C: Call<Reply = R>>(mark: u64) -> Self {
        let slot = Slot {
            read: C::reply,
            outcome: Mutex::new(None),
        };
        Self {
            mark,
            slot: Arc::new(slot),
        }
    }

    pub(super) fn other_end(&self) -> Arc<dyn Settle> {
        Arc::clone(&self.slot) as _
    }

    /// The mark of the request on the wire, where the server offers extensions.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Whether the outcome is there to be taken.
    pub fn has_come(&self) -> bool {
        self.slot.lock().is_some()
    }

    /// Takes the outcome, if it is there; only once.
    pub fn take(&self) -> Option<Outcome<R>> {
        self.slot.lock().take()
    }
}

//! What the macros' expansions name beside the public interface. Nobody else uses it.

use std::error::Error as StdError;

#[cfg(feature = "test")]
pub use shmem_test::{Test, test};

/// What a function may give that is the program of a PE.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a PE can end with",
    label = "not `()` and no `Result<(), E>`",
    note = "the function gives nothing, or a `Result<(), E>` whose error converts into a `Box<dyn Error>`"
)]
pub trait Outcome {
    /// As [`run`](crate::run) takes it.
    fn of_a_pe(self) -> Result<(), Box<dyn StdError>>;
}

impl Outcome for () {
    fn of_a_pe(self) -> Result<(), Box<dyn StdError>> {
        Ok(())
    }
}

impl<E: Into<Box<dyn StdError>>> Outcome for Result<(), E> {
    fn of_a_pe(self) -> Result<(), Box<dyn StdError>> {
        self.map_err(Into::into)
    }
}

//! The routines, a chapter of the specification a file. [`Routine`] is a line of the table.

mod atomics;
mod collectives;
mod line;
mod old;
mod rma;
mod setup;
mod signal;
mod sync;

pub use self::line::{Chapter, Contexts, Function, Generic, Routine, Status};

/// The whole table.
#[must_use]
pub fn chapters() -> Vec<Chapter> {
    let mut all = setup::chapters();
    all.extend(rma::chapters());
    all.extend(atomics::chapters());
    all.push(signal::chapter());
    all.push(collectives::chapter());
    all.extend(sync::chapters());
    let old = old::chapters(&all);
    all.extend(old);
    all
}

/// All C functions with the lines they come from.
#[must_use]
pub fn functions() -> Vec<(Routine, Function)> {
    chapters()
        .into_iter()
        .flat_map(|chapter| chapter.routines)
        .flat_map(|routine| {
            let functions = routine.functions();
            functions.into_iter().map(move |f| (routine.clone(), f))
        })
        .collect()
}

//! What is said of PEs that have begun a collective, but are not found in it.

use super::*;

/// What is said behind the wait of a group.
fn said_of(what: &str, elsewhere: &str) -> String {
    format!("waits {what}, for 12.0 s; {elsewhere}\n")
}

#[test]
fn who_has_begun_as_many_is_not_missing() {
    let text = told(1, 4, |rank, pe| {
        if rank == 2 {
            pe.begun = 42;
        } else if rank != 3 {
            *pe = found(pe.local, &[world(4, Collective::Broadcast, 42)]);
            pe.begun = 42;
        }
    });
    has(&text, &["missing: PE 3; PE 2 has begun it, too"]);
}

/// A stopped PE waits in a finalize that others have left; PEs that are not checked are in different collectives.
#[test]
fn who_is_elsewhere_has_not_begun_the_same() {
    let text = told(1, 5, |rank, pe| {
        let call = match rank {
            4 => Collective::Reduce,
            _ => Collective::Finalize,
        };
        *pe = found(pe.local, &[world(5, call, 42)]);
        pe.begun = 42;
        match rank {
            1 => (pe.ended, pe.state) = (true, PeState::Finalized),
            2 => (pe.waits, pe.state) = (Vec::new(), PeState::Finalized),
            3 => (pe.waits, pe.begun) = (Vec::new(), 43),
            _ => {}
        }
    });
    has(
        &text,
        &[
            &said_of(
                "in finalize, or at the end of main",
                "PE 2 has left it; PE 1 has ended; PE 3 has gone on; PE 4 called a different collective",
            ),
            &said_of(
                "in a reduction of the world team (its no. 42)",
                "PE 1 has ended; PE 3 has gone on; PEs 0,2 called a different collective",
            ),
        ],
    );
}

/// A process that ended may have been killed in the collective.
#[test]
fn what_ended_processes_left_is_not_guessed() {
    let text = told(1, 3, |rank, pe| {
        *pe = found(pe.local, &[world(3, Collective::Barrier, 42)]);
        pe.begun = 42;
        pe.ended = rank > 0;
    });
    has(
        &text,
        &[&said_of(
            "in barrier_all of the world team (its no. 42)",
            "PEs 1,2 have ended",
        )],
    );
}

//! Step 5: signals. A message goes round, and each PE knows when it has come without a barrier.

use shmem::{Cmp, SignalOp};

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe(), world.n_pes());
        let letter = shmem::alloc::<u8>(64)?;
        let come = shmem::alloc::<u64>(1)?;
        let send = |text: &str| {
            // Who sees the signal sees the text, too.
            let (to, length) = ((me + 1) % n, text.len() as u64);
            shmem::put_signal(letter, text.as_bytes(), come, length, SignalOp::Set, to);
        };
        if me == 0 {
            send("0");
        }
        let length = shmem::wait_until(come, Cmp::Ne, 0) as usize;
        let text = String::from_utf8(letter.at(..length).to_vec())?;
        if me == 0 {
            println!("the letter has been at {text}");
        } else {
            send(&format!("{text} {me}"));
        }
        Ok(())
    });
}

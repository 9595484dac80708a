//! A lock: accounts on all PEs, between which everybody moves money. What a transfer takes from one account and
//! gives to the other is one step for all who hold the lock.

use shmem::Lock;

const ACCOUNTS: usize = 4;
const START: i64 = 100;

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe(), world.n_pes());
        let accounts = shmem::alloc_from(&[START; ACCOUNTS])?;
        let lock = Lock::new()?;
        world.barrier();
        for turn in 0..20 {
            let (from, to) = (
                (me + turn) % (n * ACCOUNTS),
                (me * 5 + turn * 3) % (n * ACCOUNTS),
            );
            let at = |account: usize| (accounts.elem(account % ACCOUNTS), account / ACCOUNTS);
            let ((debit, payer), (credit, payee)) = (at(from), at(to));

            let _held = lock.lock();
            let amount = shmem::g(debit, payer).min(turn as i64 % 7);
            shmem::p(debit, shmem::g(debit, payer) - amount, payer);
            // The account may be the same one.
            shmem::quiet();
            shmem::p(credit, shmem::g(credit, payee) + amount, payee);
            // Letting go completes what was put.
        }
        world.barrier();
        let (total, lowest) = (
            world.sum(accounts.iter().sum::<i64>()),
            world.min(accounts.iter().min().unwrap_or(0)),
        );
        assert_eq!(total, START * (n * ACCOUNTS) as i64);
        assert!(lowest >= 0);
        if me == 0 {
            println!("{total} in {} accounts, as before", n * ACCOUNTS);
        }
        Ok(())
    });
}

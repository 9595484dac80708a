//! Step 4: atomics. Work is handed out by a counter on PE 0, to whoever asks first.

const NUMBERS: u64 = 20_000;
const AT_ONCE: u64 = 100;

fn is_prime(n: u64) -> bool {
    let mut divisors = (2..).take_while(|d| d * d <= n);
    n > 1 && divisors.all(|d| !n.is_multiple_of(d))
}

fn main() {
    shmem::run(|world| {
        let next = shmem::alloc_value(0u64)?;
        let mut found = 0u64;
        loop {
            // Nobody on PE 0 has to do anything for this.
            let start = next.fetch_add(AT_ONCE, 0);
            if start >= NUMBERS {
                break;
            }
            found += (start..start + AT_ONCE).filter(|&n| is_prime(n)).count() as u64;
        }
        let all = world.sum(found);
        if world.my_pe() == 0 {
            println!("there are {all} primes below {NUMBERS}");
        }
        assert_eq!(all, 2262);
        Ok(())
    });
}

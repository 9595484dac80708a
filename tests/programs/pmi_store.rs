//! Processes that put the same keys again, fence after fence, and get all of them: what they find is
//! neither older nor newer than the last fence. Its arguments are the number of rounds, and `reads` if
//! gets must not wait for anybody. Prints `rank N ok` at the end.

use std::process::ExitCode;

use shmem_pmi::process::Process;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let rounds: u32 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let reads = args.next().is_some_and(|word| word == "reads");
    let pmi = match Process::init() {
        Ok(pmi) => pmi,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(3);
        }
    };
    let (me, n) = (pmi.rank(), pmi.size());
    for round in 0..rounds {
        pmi.put(&format!("own-{me}"), &value(round, me)).unwrap();
        let once = format!("only-{round}-{me}");
        pmi.put(&once, &value(round, me)).unwrap();
        if me == round % n {
            pmi.put("by-turns", &value(round, me)).unwrap();
        }
        pmi.fence().unwrap();
        for other in (0..n).map(|i| (me + i) % n) {
            let get = |key: String| pmi.get(&key).unwrap();
            let expected = Some(value(round, other));
            assert_eq!(get(format!("own-{other}")), expected, "round {round}");
            assert_eq!(get(format!("only-{round}-{other}")), expected);
            if round > 0 {
                let earlier = Some(value(round - 1, other));
                assert_eq!(get(format!("only-{}-{other}", round - 1)), earlier);
            }
            assert_eq!(get("by-turns".into()), Some(value(round, round % n)));
        }
        assert_eq!(pmi.get(&format!("only-{}-{me}", round + 1)).unwrap(), None);
    }
    if reads {
        let before = waits();
        for i in 0..1000 {
            let key = format!("own-{}", i % n);
            assert_eq!(pmi.get(&key).unwrap(), Some(value(rounds - 1, i % n)));
        }
        let waited = waits() - before;
        assert!(waited < 50, "1000 gets have waited {waited} times");
    }
    pmi.finalize().unwrap();
    println!("rank {me} ok");
    ExitCode::SUCCESS
}

/// Of different lengths from round to round.
fn value(round: u32, rank: u32) -> Vec<u8> {
    let long = "x".repeat((7 * round + rank) as usize % 50);
    format!("{round}-of-{rank}-{long}").into_bytes()
}

/// How often this process has given its core away to wait for something.
fn waits() -> i64 {
    // SAFETY: an all-zero rusage is valid, and the call fills it in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_nvcsw
    }
}

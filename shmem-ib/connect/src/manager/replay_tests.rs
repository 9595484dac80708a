//! Connection messages that a stranger has recorded in an earlier job, and sends again to a later one.
//!
//! The two jobs differ in nothing but their keys: PEs, addresses, queue pairs and packet numbers are the same.

use super::tests::{address, identity, manager_of, ready};
use super::*;

const LINGER: u64 = 500_000_000;

/// A message, and the PE that it goes to.
type Recorded = (u32, Vec<u8>);

/// Two PEs that connect, use the connection in both directions, and leave.
struct Job {
    pes: [Manager; 2],
    sent: Vec<Recorded>,
    /// All that the PEs did besides sending.
    done: Vec<String>,
    phases: Vec<[Phase; 2]>,
}

impl Job {
    fn new(job_key: &'static [u8; 32]) -> Self {
        let identity = Identity {
            job_key,
            ..identity()
        };
        Self {
            pes: [0, 1].map(|pe| manager_of(&identity, pe)),
            sent: Vec::new(),
            done: Vec::new(),
            phases: Vec::new(),
        }
    }

    fn deliver(&mut self, (to, bytes): &Recorded) -> Result<Verdict, DecodeError> {
        self.pes[*to as usize].handle_datagram(0, bytes)
    }

    /// Does what the PEs ask for, until they ask for nothing more.
    fn settle(&mut self) {
        loop {
            let mut messages = Vec::new();
            for (me, manager) in (0..).zip(&mut self.pes) {
                while let Some((pe, action)) = manager.poll_action() {
                    match action {
                        Action::Send { message, .. } => {
                            let mut bytes = [0; MAX_LEN];
                            let len = manager.encode(&message, &mut bytes);
                            messages.push((pe, bytes[..len].to_vec()));
                        }
                        Action::CreateQp => manager.qp_created(0, pe, Qpn(pe + 1000)),
                        other => self.done.push(format!("{me}: {other:?}")),
                    }
                }
            }
            if messages.is_empty() {
                break;
            }
            for message in &messages {
                self.deliver(message).expect("a message of this job");
            }
            self.sent.append(&mut messages);
        }
        let phases = [self.pes[0].phase(1), self.pes[1].phase(0)];
        self.phases.push(phases);
    }

    fn refused(&self) -> u64 {
        self.pes.iter().map(|pe| pe.stats().bad_mac).sum()
    }
}

/// The whole life of a job. Before each step both PEs get all `replays`; returns how many these were.
fn run(key: &'static [u8; 32], replays: &[Recorded]) -> (Job, u64) {
    let mut job = Job::new(key);
    let mut injected = 0;
    let steps: [fn(&mut Job); 7] = [
        |job| ready(&mut job.pes[0], 0),
        |job| ready(&mut job.pes[1], 0),
        |job| job.pes[0].connect(0, 1, 1, address(1)),
        |job| job.pes[1].connect(0, 0, 0, address(0)),
        |job| job.pes[0].leave(0, LINGER),
        |job| job.pes[1].leave(0, LINGER),
        |job| {
            for pe in &mut job.pes {
                pe.say_bye(0, 8);
            }
        },
    ];
    for step in steps {
        for message in replays {
            let _ = job.deliver(message);
            injected += 1;
        }
        step(&mut job);
        job.settle();
    }
    (job, injected)
}

#[test]
fn messages_of_an_earlier_job_do_nothing_to_a_later_one() {
    let (earlier, _) = run(&[2; 32], &[]);
    assert!(earlier.phases.contains(&[Phase::Open; 2]));
    assert_eq!(earlier.phases.last(), Some(&[Phase::Parted; 2]));
    let (undisturbed, _) = run(&[3; 32], &[]);
    let (later, injected) = run(&[3; 32], &earlier.sent);
    assert_eq!(later.phases, undisturbed.phases);
    assert_eq!(later.done, undisturbed.done);
    assert_eq!(later.sent, undisturbed.sent, "they were answered");
    assert_eq!(later.refused(), injected);
    // To a job with the same key they do harm.
    let (harmed, _) = run(&[2; 32], &earlier.sent);
    assert_ne!(harmed.phases, earlier.phases);
}

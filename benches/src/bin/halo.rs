//! A halo exchange, by what sends it and what it then waits for.
//!
//! `shmrun -n 4 --nodes 2 halo`: the PEs are a ring. In each step a PE puts an edge to both neighbours with a
//! signal behind each, and waits for the two signals of its own. Rows:
//! * `put_signal`: blocking, one after the other.
//! * `nbi_local`: both in a scope that ends when the sources may be used again.
//! * `nbi`: both in a scope that ends with quiet.
//! * `iput_signal`: blocking, every second element there and here.
//! * `packed`: the same elements copied into one piece, put, and copied apart by the receiver.
//!
//! The step is what a program waits for; `send` is its part until the sources may be used again. Medians and
//! best of batches, µs, of PE 0; all data is checked. PEs alternate between two halves of the
//! memory, so that nobody overwrites what a slower neighbour has not read.

use std::time::{Duration, Instant};

use shmem::{Cmp, SignalOp, SymSlice, alloc, barrier_all, my_pe, n_pes};
use shmem_benches::stats::{median, min};

const SIZES: [usize; 6] = [8, 256, 4096, 16_384, 65_536, 1 << 20];
const LARGEST: usize = SIZES[SIZES.len() - 1] / 8;
const BATCHES: usize = 60;
/// A batch takes about so long.
const BATCH: Duration = Duration::from_millis(4);

/// One PE's part.
struct Ring {
    left: usize,
    right: usize,
    /// Of each half: room for an edge from the left and one from the right, two elements apart.
    halves: [[SymSlice<f64>; 2]; 2],
    come: SymSlice<u64>,
    step: u64,
}

/// How the edges are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    PutSignal,
    NbiLocal,
    Nbi,
    IputSignal,
    Packed,
}

impl Way {
    const ALL: [(&'static str, Self); 5] = [
        ("put_signal", Self::PutSignal),
        ("nbi_local", Self::NbiLocal),
        ("nbi", Self::Nbi),
        ("iput_signal", Self::IputSignal),
        ("packed", Self::Packed),
    ];

    /// Elements from one of the edge to the next.
    fn stride(self) -> usize {
        match self {
            Self::IputSignal | Self::Packed => 2,
            _ => 1,
        }
    }
}

/// Every second element of `field`, one behind the other.
fn pack(field: &[f64], packed: &mut Vec<f64>) {
    packed.clear();
    packed.extend(field.iter().step_by(2));
}

impl Ring {
    /// Sends both edges, `n` elements of `field` each; returns the time until the field may be used again.
    fn send(&self, way: Way, field: &[f64], n: usize, packed: &mut Vec<f64>) -> Duration {
        let begin = Instant::now();
        let [from_left, from_right] = self.halves[(self.step % 2) as usize];
        let (come, add, edge) = (self.come, SignalOp::Add, &field[..n * way.stride()]);
        // What goes to the right comes from the left there.
        let ways = [(from_left, self.right), (from_right, self.left)];
        match way {
            Way::PutSignal => {
                for (to, pe) in ways {
                    shmem::put_signal(to, edge, come, 1, add, pe);
                }
            }
            Way::NbiLocal => shmem::nbi_local(|ops| {
                for (to, pe) in ways {
                    ops.put_signal(to, edge, come, 1, add, pe);
                }
            }),
            Way::Nbi => shmem::nbi(|ops| {
                for (to, pe) in ways {
                    ops.put_signal(to, edge, come, 1, add, pe);
                }
            }),
            Way::IputSignal => {
                for (to, pe) in ways {
                    shmem::iput_signal(to, edge, 2, 2, n, come, 1, add, pe);
                }
            }
            Way::Packed => {
                for (to, pe) in ways {
                    pack(edge, packed);
                    shmem::put_signal(to, packed, come, 1, add, pe);
                }
            }
        }
        begin.elapsed()
    }

    /// One exchange; returns the time of its first part.
    fn step(&mut self, way: Way, field: &[f64], n: usize, packed: &mut Vec<f64>) -> Duration {
        self.step += 1;
        let sent = self.send(way, field, n, packed);
        shmem::wait_until(self.come, Cmp::Ge, 2 * self.step);
        if way == Way::Packed {
            for edge in self.halves[(self.step % 2) as usize] {
                // SAFETY: both neighbours have written this half, and write it again two steps on.
                let edge = unsafe { edge.as_mut_slice() };
                for i in (1..n).rev() {
                    edge[2 * i] = edge[i];
                }
            }
        }
        sent
    }
}

fn main() -> Result<(), shmem::Error> {
    let _world = shmem::init()?;
    let (me, n) = (my_pe(), n_pes());
    let area = alloc::<f64>(8 * LARGEST)?;
    let room = |i: usize| area.at(2 * i * LARGEST..2 * (i + 1) * LARGEST);
    let mut ring = Ring {
        left: (me + n - 1) % n,
        right: (me + 1) % n,
        halves: [[room(0), room(1)], [room(2), room(3)]],
        come: alloc(1)?,
        step: 0,
    };
    let steps_of = alloc::<u64>(1)?;
    let mut field = vec![0.0; 2 * LARGEST];
    let mut packed = Vec::with_capacity(LARGEST);
    if me == 0 {
        println!(
            "{:12} {:>8} {:>10} {:>10} {:>10} {:>10}",
            "way", "bytes", "step, µs", "best", "send, µs", "best"
        );
    }
    for bytes in SIZES {
        for (name, way) in Way::ALL {
            let len = bytes / 8;
            let value = (bytes + name.len()) as f64;
            field.fill(value + me as f64);
            let begin = Instant::now();
            for _ in 0..10 {
                ring.step(way, &field, len, &mut packed);
            }
            let one = begin.elapsed().as_secs_f64() / 10.0;
            if me == 0 {
                let steps = ((BATCH.as_secs_f64() / one) as u64).clamp(2, 4000);
                (0..n).for_each(|pe| shmem::p(steps_of, steps, pe));
            }
            barrier_all();
            let steps = steps_of.read(0);
            let (mut whole, mut sending) = (Vec::new(), Vec::new());
            for _ in 0..BATCHES {
                let begin = Instant::now();
                let mut sent = Duration::ZERO;
                for _ in 0..steps {
                    sent += ring.step(way, &field, len, &mut packed);
                }
                let per = |time: Duration| time.as_secs_f64() * 1e6 / steps as f64;
                whole.push(per(begin.elapsed()));
                sending.push(per(sent));
            }
            for (edge, pe) in [(0, ring.left), (1, ring.right)] {
                let edge = ring.halves[(ring.step % 2) as usize][edge];
                for i in 0..len {
                    assert_eq!(edge.read(way.stride() * i), value + pe as f64, "{name}");
                }
            }
            barrier_all();
            if me == 0 {
                println!(
                    "{name:12} {bytes:8} {:10.2} {:10.2} {:10.2} {:10.2}",
                    median(&whole),
                    min(&whole),
                    median(&sending),
                    min(&sending)
                );
            }
        }
    }
    barrier_all();
    Ok(())
}

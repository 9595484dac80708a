//! Types of one's own: particles on the PE that owns their part of space. They move, go to their new owners by an
//! exchange of unequal parts, and a reduction of another such type tells where all of them are.

use shmem::Datum;

#[derive(Clone, Copy, Debug, Datum)]
#[repr(C)]
struct Particle {
    at: f64,
    speed: f64,
    number: u64,
}

/// The least interval with all particles of some PEs, and how many these are.
#[derive(Clone, Copy, Debug, PartialEq, Datum)]
#[repr(C)]
struct Extent {
    from: f64,
    to: f64,
    particles: u64,
}

impl Extent {
    fn of(particles: &[Particle]) -> Self {
        let positions = particles.iter().map(|p| p.at);
        Self {
            from: positions.clone().fold(f64::INFINITY, f64::min),
            to: positions.fold(f64::NEG_INFINITY, f64::max),
            particles: particles.len() as u64,
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            from: self.from.min(other.from),
            to: self.to.max(other.to),
            particles: self.particles + other.particles,
        }
    }
}

/// Particles that each PE begins with.
const EACH: u64 = 30;
const STEPS: usize = 10;

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe(), world.n_pes());
        // Each PE has an interval of length 1 of a ring.
        let begin = |k: u64| Particle {
            at: me as f64 + k as f64 / EACH as f64,
            speed: (k as f64 - 9.5) / 10.0,
            number: me as u64 * EACH + k,
        };
        let mut mine: Vec<_> = (0..EACH).map(begin).collect();
        for _ in 0..STEPS {
            let mut leaving = vec![Vec::new(); n];
            for mut particle in mine {
                particle.at = (particle.at + particle.speed).rem_euclid(n as f64);
                // Rounding may make it the ring's length.
                leaving[(particle.at as usize).min(n - 1)].push(particle);
            }
            mine = world.alltoallv(&leaving)?.into_vec();
        }
        assert!(mine.iter().all(|p| (p.at as usize).min(n - 1) == me));

        let all = world.reduce_value(Extent::of(&mine), Extent::with);
        assert_eq!(all.particles, EACH * n as u64);
        let numbers = world.sum(mine.iter().map(|p| p.number).sum::<u64>());
        assert_eq!(numbers, (0..EACH * n as u64).sum());
        if me == 0 {
            println!(
                "{} particles between {:.2} and {:.2}",
                all.particles, all.from, all.to
            );
        }
        Ok(())
    });
}

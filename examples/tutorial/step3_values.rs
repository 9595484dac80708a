//! Step 3: collectives. Everybody computes a part of pi; everybody gets the whole.

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe(), world.n_pes());
        // What one PE has read, from a file for example, is broadcast.
        let steps = world.broadcast_value(if me == 0 { 1_000_000 } else { 0 }, 0);
        let width = 1.0 / steps as f64;
        let height = |i: usize| 4.0 / (1.0 + ((i as f64 + 0.5) * width).powi(2));
        let part: f64 = (me..steps).step_by(n).map(height).sum();
        let pi = world.sum(part * width);
        // Values of all PEs, in order of their numbers.
        let counts = world.all_gather((me..steps).step_by(n).len());
        if me == 0 {
            println!("pi is about {pi:.6}");
            assert_eq!(counts.iter().sum::<usize>(), steps);
        }
        assert!((pi - std::f64::consts::PI).abs() < 1e-9);
        Ok(())
    });
}

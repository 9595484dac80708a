//! Teams: a matrix in blocks on a grid of PEs, multiplied by a vector. Columns of PEs hold the same part of the
//! vector, and rows add up what their blocks make of it.

/// Rows and columns of each block.
const SIZE: usize = 8;

fn element(i: usize, j: usize) -> f64 {
    ((i * 7 + j * 3) % 10) as f64
}

fn vector(j: usize) -> f64 {
    (j % 5) as f64
}

fn main() {
    shmem::run(|world| {
        // As many rows as divide the PEs, at most as many as columns.
        let n = world.n_pes();
        let rows = (1..=n)
            .take_while(|r| r * r <= n)
            .filter(|r| n % r == 0)
            .last()
            .unwrap_or(1);
        let cols = n / rows;
        let (row, column) = world.split_2d(cols)?;
        let (i, j) = (column.my_pe(), row.my_pe());

        // One PE of each column knows its part of the vector.
        let part: [f64; SIZE] = match i {
            0 => std::array::from_fn(|k| vector(j * SIZE + k)),
            _ => [0.0; SIZE],
        };
        let part = column.broadcast_value(part, 0);
        let partial = std::array::from_fn(|r| {
            (0..SIZE)
                .map(|c| element(i * SIZE + r, j * SIZE + c) * part[c])
                .sum()
        });
        let product: [f64; SIZE] = row.sum(partial);

        for (r, &found) in product.iter().enumerate() {
            let all = (0..cols * SIZE).map(|c| element(i * SIZE + r, c) * vector(c));
            assert_eq!(found, all.sum::<f64>(), "row {}", i * SIZE + r);
        }
        // The first of each row speaks for it; all of a column agree who that is.
        let norm = column
            .sum(product.iter().map(|x| x * x).sum::<f64>())
            .sqrt();
        if world.my_pe() == 0 {
            println!("{rows} x {cols} PEs: the product's length is {norm:.3}");
        }
        Ok(())
    });
}

//! Tests whose arguments cannot be meant.

#[shmem::test(pe = 4)]
fn unknown() {}

#[shmem::test(pes = 0)]
fn nobody() {}

#[shmem::test(pes = 2, nodes = 3)]
fn more_nodes_than_pes() {}

#[shmem::test(pes = 4, nodes = [1, 2, 1])]
fn a_layout_twice() {}

#[shmem::test(nodes = [])]
fn no_layout() {}

#[shmem::test(pes = 2, pes = 3)]
fn an_argument_twice() {}

#[shmem::test(timeout = "500ms")]
fn less_than_a_second() {}

#[shmem::test(timeout = "soon")]
fn no_time() {}

#[shmem::test(env("A=B" = "1"))]
fn no_variable() {}

fn main() {}

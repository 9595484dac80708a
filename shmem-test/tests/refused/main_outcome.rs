//! What a PE cannot end with.

#[shmem::main]
fn main() -> u32 {
    0
}

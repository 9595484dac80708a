//! The ELF note from which a launcher sees that a program may use MPI although it is not linked with it.
//!
//! It is named `SHMEM` as that of the library `shmem`, has [`KIND`], and is in section [`SECTION`], which is loaded:
//! program headers lead to it in stripped programs, too. Programs have it that call [`crate::Mpi::load`], and not those
//! that merely contain this crate because a library looks whether there is MPI.

/// The section.
pub const SECTION: &str = ".note.shmem_mpi";

/// The type of the note; that of the library `shmem` is 1.
pub const KIND: u32 = 2;

/// What the note says: who it is for, and the version of this convention.
pub const CONTENT: &[u8; 8] = b"mpi 1\0\0\0";

/// Puts the note into the object file of whoever calls this: a static would be in every program that this crate is
/// linked into.
#[inline(always)]
pub(crate) fn place() {
    // SAFETY: no instruction is emitted. The directives lead back to the section that they come from.
    unsafe {
        std::arch::asm!(
            ".pushsection .note.shmem_mpi, \"a\", %note",
            ".balign 4",
            ".long 6",
            ".long 8",
            ".long {kind}",
            ".asciz \"SHMEM\"",
            ".balign 4",
            ".ascii \"mpi 1\\0\\0\\0\"",
            ".popsection",
            kind = const KIND,
            options(nomem, nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_in_this_program() {
        place();
        let program = std::fs::read("/proc/self/exe").unwrap();
        let note = [
            &6u32.to_ne_bytes()[..],
            &8u32.to_ne_bytes(),
            &KIND.to_ne_bytes(),
            b"SHMEM\0\0\0",
            CONTENT,
        ]
        .concat();
        let has = |bytes: &[u8]| program.windows(bytes.len()).any(|part| part == bytes);
        assert!(has(&note) && has(SECTION.as_bytes()));
    }
}

//! What the three binary interfaces number differently: handles, constants, and where a status has its fields.
//!
//! The numbers are those of the headers: `mpi.h` of MPICH 3 to 5, `mpi_abi.h` of MPICH 5, `mpi.h` of Open MPI 4 and 5.
//! `header_tests` has compilers compare them where there are any.

use std::ffi::{c_int, c_void};
use std::fmt;

use crate::element::KINDS;

/// A binary interface of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interface {
    /// MPICH's, since release 3.1.
    Mpich,
    /// The one that MPI 5.0 defines.
    Standard,
    /// Open MPI's, releases 4 and 5.
    OpenMpi,
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpich => "MPICH ABI",
            Self::Standard => "MPI 5 ABI",
            Self::OpenMpi => "Open MPI ABI",
        })
    }
}

/// A handle, whatever it is in C: the number, or the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) isize);

/// What a handle is in C.
pub(crate) trait InC: Copy + 'static {
    fn from(handle: Handle) -> Self;
    fn into(self) -> Handle;
}

impl InC for c_int {
    fn from(handle: Handle) -> Self {
        handle.0 as c_int
    }

    fn into(self) -> Handle {
        Handle(self as isize)
    }
}

impl InC for *mut c_void {
    fn from(handle: Handle) -> Self {
        std::ptr::with_exposed_provenance_mut(handle.0 as usize)
    }

    fn into(self) -> Handle {
        Handle(self.expose_provenance() as isize)
    }
}

/// A predefined handle: a number, or the address of a symbol of the library.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Predefined {
    Number(isize),
    Symbol(&'static str),
}

/// An interface's numbers. `H` is [`Predefined`] in the tables, and [`Handle`] where the library is loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Constants<H> {
    pub(crate) world: H,
    pub(crate) no_request: H,
    pub(crate) no_info: H,
    pub(crate) errors_return: H,
    /// In the order of [`crate::ReduceOp`].
    pub(crate) ops: [H; 3],
    /// In the order of [`crate::element::Kind`].
    pub(crate) kinds: [H; KINDS],
    pub(crate) in_place: isize,
    pub(crate) status_ignore: usize,
    pub(crate) any_source: c_int,
    pub(crate) any_tag: c_int,
    pub(crate) shared: c_int,
    /// Single, funneled, serialized, multiple.
    pub(crate) thread_levels: [c_int; 4],
    /// Which `int` of a status is its source; its tag is the next.
    pub(crate) source_at: usize,
}

impl<H: Copy> Constants<H> {
    /// The same with other handles.
    pub(crate) fn try_map<G, E>(
        &self,
        mut f: impl FnMut(H) -> Result<G, E>,
    ) -> Result<Constants<G>, E> {
        let [sum, max, min] = self.ops;
        let mut kinds = Vec::with_capacity(KINDS);
        for kind in self.kinds {
            kinds.push(f(kind)?);
        }
        let Ok(kinds) = <[G; KINDS]>::try_from(kinds) else {
            unreachable!("as many as there were")
        };
        Ok(Constants {
            world: f(self.world)?,
            no_request: f(self.no_request)?,
            no_info: f(self.no_info)?,
            errors_return: f(self.errors_return)?,
            ops: [f(sum)?, f(max)?, f(min)?],
            kinds,
            in_place: self.in_place,
            status_ignore: self.status_ignore,
            any_source: self.any_source,
            any_tag: self.any_tag,
            shared: self.shared,
            thread_levels: self.thread_levels,
            source_at: self.source_at,
        })
    }
}

const fn number(n: isize) -> Predefined {
    Predefined::Number(n)
}

const fn symbol(name: &'static str) -> Predefined {
    Predefined::Symbol(name)
}

const MPICH: Constants<Predefined> = Constants {
    world: number(0x4400_0000),
    no_request: number(0x2c00_0000),
    no_info: number(0x1c00_0000),
    errors_return: number(0x5400_0001),
    ops: [
        number(0x5800_0003),
        number(0x5800_0001),
        number(0x5800_0002),
    ],
    kinds: [
        number(0x4c00_0137),
        number(0x4c00_0238),
        number(0x4c00_0439),
        number(0x4c00_083a),
        number(0x4c00_013b),
        number(0x4c00_023c),
        number(0x4c00_043d),
        number(0x4c00_083e),
        number(0x4c00_040a),
        number(0x4c00_080b),
    ],
    in_place: -1,
    status_ignore: 1,
    any_source: -2,
    any_tag: -1,
    shared: 1,
    thread_levels: [0, 1, 2, 3],
    source_at: 2,
};

const STANDARD: Constants<Predefined> = Constants {
    world: number(0x101),
    no_request: number(0x180),
    no_info: number(0x130),
    errors_return: number(0x143),
    ops: [number(0x21), number(0x23), number(0x22)],
    kinds: [
        number(0x240),
        number(0x248),
        number(0x250),
        number(0x258),
        number(0x241),
        number(0x249),
        number(0x251),
        number(0x259),
        number(0x210),
        number(0x214),
    ],
    in_place: 1,
    status_ignore: 0,
    any_source: -1,
    any_tag: -2,
    shared: 221,
    thread_levels: [0, 1024, 2048, 4096],
    source_at: 0,
};

const OPEN_MPI: Constants<Predefined> = Constants {
    world: symbol("ompi_mpi_comm_world"),
    no_request: symbol("ompi_request_null"),
    no_info: symbol("ompi_mpi_info_null"),
    errors_return: symbol("ompi_mpi_errors_return"),
    ops: [
        symbol("ompi_mpi_op_sum"),
        symbol("ompi_mpi_op_max"),
        symbol("ompi_mpi_op_min"),
    ],
    kinds: [
        symbol("ompi_mpi_int8_t"),
        symbol("ompi_mpi_int16_t"),
        symbol("ompi_mpi_int32_t"),
        symbol("ompi_mpi_int64_t"),
        symbol("ompi_mpi_uint8_t"),
        symbol("ompi_mpi_uint16_t"),
        symbol("ompi_mpi_uint32_t"),
        symbol("ompi_mpi_uint64_t"),
        symbol("ompi_mpi_float"),
        symbol("ompi_mpi_double"),
    ],
    in_place: 1,
    status_ignore: 0,
    any_source: -1,
    any_tag: -1,
    shared: 0,
    thread_levels: [0, 1, 2, 3],
    source_at: 0,
};

impl Interface {
    pub(crate) fn constants(self) -> &'static Constants<Predefined> {
        match self {
            Self::Mpich => &MPICH,
            Self::Standard => &STANDARD,
            Self::OpenMpi => &OPEN_MPI,
        }
    }

    /// Whether handles are `int`, rather than pointers.
    pub(crate) fn has_int_handles(self) -> bool {
        self == Self::Mpich
    }
}

/// Room for a status of any interface: the largest has 32 bytes.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Status {
    pub(crate) ints: [c_int; 16],
}

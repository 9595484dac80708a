//! What reproduces a paper, and is not on the way of a job unless somebody selects it. Nothing outside of
//! this folder imports it but the place that selects.
//!
//! | what | paper | selected by | measured by |
//! |---|---|---|---|
//! | [`primitives`]: the communication primitives of node launch agents | ScELA thesis (2009), 2.2.3 | [`Process::primitives`](crate::process::Process::primitives) | `pmi_collectives` |
//! | [`pmgr`]: the start-up protocol of that name | the same, 2.3.2 | the program, over `primitives` | `pmi_collectives` |
//! | `caches`: three ways not to hold all pairs at every agent | the same, chapter 3 | [`CachePolicy`](crate::server::CachePolicy), the setting `SHMEM_PMI_CACHE` | the figure `pmi-caches` |

pub(crate) mod caches;
pub mod pmgr;
pub mod primitives;

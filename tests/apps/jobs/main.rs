//! Benchmarks and applications as whole jobs through the real `shmrun`: NAS, Graph500, heat in a plate, and the model of whole jobs.
//!
//! They are a package of their own: they are tested in release mode, and other tests are built without them.

mod graph500;
mod heat2d;
mod npb;
mod programs;
mod scale;

//! Whole jobs through the real `shmrun`.

mod binding;
mod deaths;
mod exec;
mod hosts;
mod limits;
mod ordinary;
mod output;
mod pmix;
mod programs;
mod refused_programs;
mod respawn;
mod signals;
mod silence;
mod streams;
mod support;
mod template;

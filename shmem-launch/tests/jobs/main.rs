//! Whole jobs through the real `shmrun`.

mod exec;
mod hosts;
mod support;
mod template;

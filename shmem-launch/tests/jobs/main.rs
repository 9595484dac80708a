//! Whole jobs through the real `shmrun`.

mod exec;
mod hosts;
mod ordinary;
mod support;
mod template;

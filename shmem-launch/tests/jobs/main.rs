//! Whole jobs through the real `shmrun`.

mod exec;
mod support;
mod template;

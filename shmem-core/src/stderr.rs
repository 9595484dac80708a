//! The last way to tell the user something: a line on standard error.

/// Writes a line on standard error, in one write: others may write there, too.
pub(crate) fn write(text: &str) {
    shmem_node::text::say(format_args!("shmem: {}", text.trim_end()));
}

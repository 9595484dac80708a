//! Text that must fit into a given number of bytes.

/// The beginning of `text`: at most `most` bytes, and no half of a character.
pub fn beginning(text: &str, most: usize) -> &str {
    // `str::floor_char_boundary` is newer than the oldest Rust that the workspace promises.
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_cut() {
        assert_eq!(beginning("héllo", 0), "");
        assert_eq!(beginning("héllo", 1), "h");
        assert_eq!(beginning("héllo", 2), "h");
        assert_eq!(beginning("héllo", 3), "hé");
        assert_eq!(beginning("héllo", 6), "héllo");
        assert_eq!(beginning("héllo", 60), "héllo");
        assert_eq!(beginning("", 3), "");
    }
}

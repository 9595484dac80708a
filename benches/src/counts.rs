//! What a machine counts while an operation is repeated: where time says little, as on an emulated processor,
//! the costs of libraries can still be compared by events of the kernel and the devices.

use std::fs;
use std::path::PathBuf;

/// Files of counters that the kernel keeps.
#[derive(Debug, Clone, Default)]
pub struct Counters(Vec<PathBuf>);

/// One counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// What it counts.
    pub name: String,
    /// How much of it.
    pub value: u64,
}

impl Counters {
    /// The files that `BENCH_COUNTS` in the environment names, with colons between them. Each holds one number,
    /// which counts what the file is called; or a name and a number a line, as the kernel's `kprobe_profile`.
    #[must_use]
    pub fn from_env() -> Self {
        let files = std::env::var_os("BENCH_COUNTS").unwrap_or_default();
        Self(std::env::split_paths(&files).collect())
    }

    /// The counters as they stand. A file that cannot be read has none; numbers of one name are added.
    #[must_use]
    pub fn read(&self) -> Vec<Count> {
        let mut counts: Vec<Count> = Vec::new();
        for file in &self.0 {
            let text = fs::read_to_string(file).unwrap_or_default();
            let whole = file.file_name().unwrap_or_default().to_string_lossy();
            for line in text.lines() {
                let mut words = line.split_whitespace();
                let (name, value) = match (words.next(), words.next()) {
                    (Some(value), None) => (&*whole, value),
                    (Some(name), Some(value)) => (name, value),
                    _ => continue,
                };
                let Ok(value) = value.parse() else { continue };
                match counts.iter_mut().find(|c| c.name == name) {
                    Some(known) => known.value += value,
                    None => counts.push(Count {
                        name: name.to_owned(),
                        value,
                    }),
                }
            }
        }
        counts
    }

    /// What has been counted since `before`.
    #[must_use]
    pub fn since(&self, before: &[Count]) -> Vec<Count> {
        let mut counts = self.read();
        for count in &mut counts {
            let then = before.iter().find(|c| c.name == count.name);
            count.value = count.value.saturating_sub(then.map_or(0, |c| c.value));
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_both_kinds_are_read_and_numbers_of_one_name_added() {
        let dir = std::env::temp_dir().join(format!("shmem-counts-{}", std::process::id()));
        for sub in ["a", "b"] {
            fs::create_dir_all(dir.join(sub)).expect("a directory");
            fs::write(dir.join(sub).join("packets"), "7\n").expect("a file");
        }
        let profile = dir.join("profile");
        fs::write(&profile, "  bell   5   0\n  nonsense\n").expect("a file");
        let counters = Counters(vec![
            dir.join("a/packets"),
            dir.join("b/packets"),
            profile.clone(),
            dir.join("missing"),
        ]);
        let count = |name: &str, value| Count {
            name: name.to_owned(),
            value,
        };
        let before = counters.read();
        assert_eq!(before, [count("packets", 14), count("bell", 5)]);
        fs::write(&profile, "bell 9 0\n").expect("a file");
        assert_eq!(
            counters.since(&before),
            [count("packets", 0), count("bell", 4)]
        );
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}

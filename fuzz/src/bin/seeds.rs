//! Writes the seeds of all targets, and their committed corpus, where cargo-fuzz looks for them.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let Some(to) = env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("usage: seeds <directory>"));
    };
    for target in shmem_fuzz::TARGETS {
        let to = to.join(target.name);
        fs::create_dir_all(&to)?;
        for (i, seed) in (target.seeds)().iter().enumerate() {
            fs::write(to.join(format!("seed-{i}")), seed)?;
        }
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        if let Ok(entries) = fs::read_dir(corpus.join(target.name)) {
            for entry in entries {
                let entry = entry?;
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
    }
    Ok(())
}

//! Text of the user: environment variables.

use shmem_node::settings::{Settings, TABLE};

/// Every variable takes the text or explains why not.
///
/// # Panics
/// If something is accepted that is out of range, or refused without naming the variable.
pub fn settings(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let row = &TABLE[usize::from(*first) % TABLE.len()];
    let text = String::from_utf8_lossy(rest);
    let parsed = Settings::parse(|name| (name == row.name).then(|| text.to_string()));
    match parsed {
        Ok(settings) => {
            let faults = settings.soft_faults;
            for ppm in [faults.drop_ppm, faults.duplicate_ppm, faults.reorder_ppm] {
                assert!(ppm <= 1_000_000, "{text}");
            }
            assert!(settings.symmetric_size <= 1 << 46, "{text}");
            assert!(settings.tree_degree <= 128, "{text}");
            assert!([0, 256, 512, 1024, 2048, 4096, 61_440].contains(&settings.soft_mtu));
        }
        Err(e) => assert!(e.to_string().contains(row.name), "{e}"),
    }
}

/// The default of every variable, and what else some take.
#[must_use]
pub fn settings_seeds() -> Vec<Vec<u8>> {
    let defaults = TABLE.iter().enumerate();
    let mut seeds: Vec<Vec<u8>> = defaults
        .map(|(i, row)| [&[i as u8], row.default.as_bytes()].concat())
        .collect();
    let faults = TABLE.iter().position(|row| row.name.ends_with("FAULTS"));
    for text in [
        "drop=1%,duplicate=0.5%,reorder=1%,seed=7",
        "drop=25ppm",
        "none,drop=1%",
    ] {
        seeds.push([&[faults.unwrap_or(0) as u8], text.as_bytes()].concat());
    }
    seeds.push(b"\x003.5Gib".to_vec());
    seeds
}

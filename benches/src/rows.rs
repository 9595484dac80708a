//! Reads the rows that `p2p`, `collectives` and `by_bytes` print, and their twins in C.

/// One operation of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Operation.
    pub name: String,
    /// Bytes that it moves.
    pub bytes: u64,
    /// Nanoseconds of an operation in each batch.
    pub samples: Vec<f64>,
}

/// Reads one run. What else is counted beside times is left to others.
///
/// # Errors
/// What is wrong with which line, or that there are no rows or one has no samples.
pub fn read(csv: &str) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for line in csv.lines().filter(|l| !l.starts_with("row,")) {
        let fields: Vec<&str> = line.split(',').collect();
        let &[name, bytes, what, _ops, value] = &fields[..] else {
            return Err(format!("not a sample: {line:?}"));
        };
        let (Ok(bytes), Ok(value)) = (bytes.parse::<u64>(), value.parse::<f64>()) else {
            return Err(format!("not numbers: {line:?}"));
        };
        let same = |r: &Row| r.name == name && r.bytes == bytes;
        let at = rows.iter().position(same).unwrap_or(rows.len());
        if at == rows.len() {
            rows.push(Row {
                name: name.to_owned(),
                bytes,
                samples: Vec::new(),
            });
        }
        if what == "ns" {
            rows[at].samples.push(value);
        }
    }
    match rows.iter().find(|r| r.samples.is_empty()) {
        Some(row) => Err(format!(
            "{} of {} bytes has no samples",
            row.name, row.bytes
        )),
        None if rows.is_empty() => Err("no samples".to_owned()),
        None => Ok(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "row,bytes,what,ops,value\n\
        get,8,ns,4,3000\nget,8,ns,4,1000\nget,8,ns,4,2000\nget,8,cpu0_ns,12,900\nget,8,doorbells,12,1.01\n\
        get,64,ns,4,12345\nget,64,cpu0_ns,4,0\nget,64,cpu1_ns,4,0\n";

    #[test]
    fn a_run_is_read() {
        let rows = read(RUN).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].samples, [3000.0, 1000.0, 2000.0]);
        assert_eq!((rows[1].name.as_str(), rows[1].bytes), ("get", 64));
    }

    #[test]
    fn what_is_no_run_is_refused() {
        for (text, why) in [
            ("", "no samples"),
            ("get,8,ns,4", "not a sample"),
            ("get,8,ns,4,x", "not numbers"),
            ("get,8,cpu0_ns,4,1", "get of 8 bytes has no samples"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}

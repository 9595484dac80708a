//! Reads figures out of the report that `shmrun --report-json` writes.

/// A figure over all PEs that reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Smallest of a PE.
    pub min: f64,
    /// Mean over PEs.
    pub mean: f64,
    /// Largest of a PE.
    pub max: f64,
    /// Sum over PEs.
    pub sum: f64,
}

/// The figure called `name`, if the report has it. The report is ours: one figure is one object
/// without objects in it.
pub fn figure(json: &str, name: &str) -> Option<Figure> {
    let start = json.find(&format!("{{\"name\": \"{name}\", \"unit\""))?;
    let object = json[start..].split_once('}')?.0;
    let value = |key: &str| -> Option<f64> {
        let (_, rest) = object.split_once(&format!("\"{key}\": "))?;
        rest.split(',').next()?.trim().parse().ok()
    };
    Some(Figure {
        min: value("min")?,
        mean: value("mean")?,
        max: value("max")?,
        sum: value("sum")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_whole_name() {
        let json = "{\"figures\": [\n\
            {\"name\": \"queue pairs\", \"unit\": \"count\", \"min\": 1, \"mean\": 2.5, \"max\": 4, \"sum\": 10},\n\
            {\"name\": \"queue\", \"unit\": \"count\", \"min\": 0, \"mean\": 0, \"max\": 0, \"sum\": 0}\n]}";
        let found = figure(json, "queue pairs").unwrap();
        let expected = Figure {
            min: 1.0,
            mean: 2.5,
            max: 4.0,
            sum: 10.0,
        };
        assert_eq!(found, expected);
        assert_eq!(figure(json, "queue").unwrap().sum, 0.0);
        assert_eq!(figure(json, "pairs"), None);
        assert_eq!(
            figure("{\"name\": \"x\", \"unit\": \"count\", \"min\": 1", "x"),
            None
        );
    }
}

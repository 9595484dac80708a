//! What a figure has measured: samples by series, place and quantity, and the charts of them.

use super::chart::{Chart, Kind, Series};
use super::unit::Unit;
use shmem_benches::stats::Spread;

/// Samples, in the order in which there were first any.
#[derive(Debug, Clone, Default)]
pub struct Data(Vec<Entry>);

#[derive(Debug, Clone)]
struct Entry {
    series: String,
    place: String,
    quantity: String,
    samples: Vec<f64>,
}

impl Data {
    /// Adds a sample.
    pub fn add(&mut self, series: &str, place: &str, quantity: &str, value: f64) {
        let same =
            |e: &&mut Entry| (&*e.series, &*e.place, &*e.quantity) == (series, place, quantity);
        match self.0.iter_mut().find(same) {
            Some(entry) => entry.samples.push(value),
            None => self.0.push(Entry {
                series: series.to_owned(),
                place: place.to_owned(),
                quantity: quantity.to_owned(),
                samples: vec![value],
            }),
        }
    }

    /// The samples of a quantity of a series at a place, in the order of rounds.
    pub fn samples(&self, series: &str, place: &str, quantity: &str) -> &[f64] {
        let same = |e: &&Entry| (&*e.series, &*e.place, &*e.quantity) == (series, place, quantity);
        self.0.iter().find(same).map_or(&[], |e| &e.samples)
    }

    /// What was measured of it.
    pub fn spread(&self, series: &str, place: &str, quantity: &str) -> Option<Spread> {
        Spread::of(self.samples(series, place, quantity))
    }

    /// Its median.
    pub fn median(&self, series: &str, place: &str, quantity: &str) -> Option<f64> {
        self.spread(series, place, quantity).map(|s| s.median)
    }

    /// The places of a quantity.
    pub fn places(&self, quantity: &str) -> Vec<String> {
        distinct(
            self.0
                .iter()
                .filter(|e| e.quantity == quantity)
                .map(|e| &e.place),
        )
    }

    /// A chart of one quantity: its places, and what all series have there.
    pub fn chart(
        &self,
        name: &'static str,
        title: &str,
        places: &'static str,
        quantity: &str,
        unit: Unit,
        kind: Kind,
    ) -> Chart {
        let of = || self.0.iter().filter(|e| e.quantity == quantity);
        let mut at = self.places(quantity);
        if kind == Kind::Lines {
            at.sort_by_key(|place| place.parse::<u64>().unwrap_or(u64::MAX));
        }
        let series = distinct(of().map(|e| &e.series))
            .into_iter()
            .map(|name| Series {
                values: at
                    .iter()
                    .map(|place| self.spread(&name, place, quantity))
                    .collect(),
                name,
            });
        Chart {
            name,
            title: title.to_owned(),
            places,
            series: series.collect(),
            at,
            unit,
            kind,
        }
    }

    /// A chart of what one series is made of: several quantities, with the names they go by there.
    pub fn stacks(
        &self,
        name: &'static str,
        title: &str,
        places: &'static str,
        series: &str,
        parts: &[(&str, &str)],
    ) -> Chart {
        let of = self
            .0
            .iter()
            .filter(|e| e.series == series && parts.iter().any(|(q, _)| e.quantity == *q));
        let at = distinct(of.map(|e| &e.place));
        let parts = parts.iter().map(|(quantity, name)| Series {
            name: (*name).to_owned(),
            values: at
                .iter()
                .map(|place| self.spread(series, place, quantity))
                .collect(),
        });
        Chart {
            name,
            title: title.to_owned(),
            places,
            series: parts.collect(),
            at,
            unit: Unit::Seconds,
            kind: Kind::Stacks,
        }
    }
}

fn distinct<'a>(of: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for one in of {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Data {
        let mut data = Data::default();
        for (series, place, quantity, value) in [
            ("B", "64", "init", 2.0),
            ("A", "8", "init", 1.0),
            ("A", "8", "init", 3.0),
            ("A", "8", "wall", 9.0),
        ] {
            data.add(series, place, quantity, value);
        }
        data
    }

    #[test]
    fn a_chart_has_a_quantity_of_all_series_at_all_places() {
        let chart = data().chart("c", "t", "PEs", "init", Unit::Seconds, Kind::Lines);
        assert_eq!(chart.at, ["8", "64"], "as numbers");
        let medians: Vec<_> = chart
            .series
            .iter()
            .map(|s| (&*s.name, s.values[0].map(|v| v.median)))
            .collect();
        assert_eq!(medians, [("B", None), ("A", Some(2.0))]);
        assert_eq!(data().median("A", "64", "init"), None);
    }

    #[test]
    fn stacks_have_the_quantities_of_one_series() {
        let parts = [("init", "init"), ("wall", "all of it"), ("none", "missing")];
        let chart = data().stacks("c", "t", "PEs", "A", &parts);
        assert_eq!(chart.at, ["8"]);
        let names: Vec<_> = chart
            .series
            .iter()
            .map(|s| (&*s.name, s.values[0].is_some()))
            .collect();
        assert_eq!(
            names,
            [("init", true), ("all of it", true), ("missing", false)]
        );
    }
}

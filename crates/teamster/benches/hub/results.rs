//! What was measured: names and numbers, and what they were the last time.

use std::collections::BTreeMap;
use std::path::Path;

use crate::load::{Load, median, p50, p99};

/// Samples by name, in the order in which names first came. A result is the median of its samples.
#[derive(Debug, Default)]
pub(crate) struct Results {
    samples: Vec<(String, Vec<f64>)>,
}

impl Results {
    pub(crate) fn add(&mut self, name: &str, value: f64) {
        match self.samples.iter_mut().find(|(known, _)| known == name) {
            Some((_, samples)) => samples.push(value),
            None => self.samples.push((name.to_owned(), vec![value])),
        }
    }

    pub(crate) fn add_latencies(&mut self, name: &str, sorted_us: &[f64]) {
        self.add(&format!("{name}_p50_us"), p50(sorted_us));
        self.add(&format!("{name}_p99_us"), p99(sorted_us));
    }

    pub(crate) fn add_load(&mut self, name: &str, load: &Load) {
        self.add(&format!("{name}_per_s"), load.calls_per_s);
        self.add_latencies(name, &load.latencies_us);
        self.add(&format!("{name}_cpu_us"), load.cpu_us);
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        let (_, samples) = self.samples.iter().find(|(known, _)| known == name)?;
        Some(median(samples))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.samples.iter().map(|(name, samples)| (name.as_str(), median(samples)))
    }

    /// Keeps the results in `directory` and returns those that were kept there before. A result that was not measured
    /// this time stays among the last ones.
    pub(crate) fn keep(&self, directory: &Path) -> BTreeMap<String, f64> {
        let (now, last) = (directory.join("hub.json"), directory.join("hub.last.json"));
        let mut before = read(&last);
        before.extend(read(&now));
        write(&last, &before);
        write(&now, &self.iter().map(|(name, value)| (name.to_owned(), value)).collect());
        before
    }
}

fn read(path: &Path) -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn write(path: &Path, results: &BTreeMap<String, f64>) {
    let text = serde_json::to_string_pretty(results).expect("numbers have a JSON form");
    std::fs::write(path, text + "\n").expect("results can be kept");
}

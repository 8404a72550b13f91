//! Figures: gathered run by run, printed as a table or as JSON lines.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;

use super::{
    Result,
    meter::Figure,
    options::{Format, Show},
    plot::{self, Curve, Histogram},
};

/// The figures of a subcommand.
#[derive(Debug)]
pub(super) struct Report {
    bench: &'static str,
    database: &'static str,
    samples: Vec<Sample>,
    notes: Vec<String>,
    curves: Vec<Curve>,
    histograms: Vec<Histogram>,
}

/// One figure, measured once per run.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    subject: String,
    name: &'static str,
    pub(super) unit: &'static str,
    pub(super) values: Vec<f64>,
}

/// A sample as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    bench: &'a str,
    database: &'a str,
    subject: &'a str,
    name: &'a str,
    unit: &'a str,
    /// The median.
    value: f64,
    min: f64,
    max: f64,
    runs: usize,
}

/// A remark as a line of JSON.
#[derive(Serialize)]
struct Note<'a> {
    bench: &'a str,
    database: &'a str,
    note: &'a str,
}

impl Report {
    pub(super) fn new(bench: &'static str, database: &'static str) -> Self {
        let (samples, notes, curves, histograms) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { bench, database, samples, notes, curves, histograms }
    }

    /// Adds the figures of one run of a subject. Figures that could not be read are left out.
    pub(super) fn add_all(&mut self, subject: &str, figures: &[Figure]) {
        for Figure { name, unit, value } in figures {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                self.add(subject, name, unit, value);
            }
        }
    }

    fn add(&mut self, subject: &str, name: &'static str, unit: &'static str, value: f64) {
        let is_it =
            |sample: &&mut Sample| (&*sample.subject, sample.name, sample.unit) == (subject, name, unit);
        match self.samples.iter_mut().find(is_it) {
            Some(sample) => sample.values.push(value),
            None => {
                let subject = subject.to_owned();
                self.samples.push(Sample { subject, name, unit, values: vec![value] });
            }
        }
    }

    /// What was measured of a subject under this name.
    pub(super) fn sample(&self, subject: &str, name: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| (&*sample.subject, sample.name) == (subject, name))
    }

    /// Adds a note that a reader of the figures needs.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Sets the curve of one subject for the drawing. It replaces the last one of that subject.
    pub(super) fn curve(&mut self, curve: Curve) {
        self.curves.retain(|known| known.label != curve.label);
        self.curves.push(curve);
    }

    /// Sets the histogram of one subject, which is drawn instead of curves. It replaces the last one of that subject.
    pub(super) fn histogram(&mut self, histogram: Histogram) {
        self.histograms.retain(|known| known.label != histogram.label);
        self.histograms.push(histogram);
    }

    /// Prints the figures and draws the curves.
    pub(super) fn show(&self, show: &Show) -> Result<()> {
        match show.format {
            Format::Table => print!("{}", self.table()?),
            Format::Json => print!("{}", self.json_lines()?),
        }
        let Some(file) = &show.plot else { return Ok(()) };
        let title = format!("{} on {}", self.bench, self.database);
        match self.histograms.is_empty() {
            true => plot::draw(file, &title, &self.curves),
            false => plot::draw_histograms(file, &title, &self.histograms),
        }
    }

    fn table(&self) -> Result<String> {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header(["", "", "median", "min", "max", "unit", "runs"]);
        for sample in &self.samples {
            let [median, min, max] = [sample.median(), sample.min(), sample.max()].map(rounded);
            let runs = sample.values.len().to_string();
            table.add_row([&sample.subject, sample.name, &median, &min, &max, sample.unit, &runs]);
        }
        for column in [2, 3, 4, 6] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = format!("{} on {}\n{table}\n", self.bench, self.database);
        for note in &self.notes {
            writeln!(text, "{note}")?;
        }
        Ok(text)
    }

    fn json_lines(&self) -> Result<String> {
        let (bench, database) = (self.bench, self.database);
        let mut text = String::new();
        for sample in &self.samples {
            let line = Line {
                bench,
                database,
                subject: &sample.subject,
                name: sample.name,
                unit: sample.unit,
                value: sample.median(),
                min: sample.min(),
                max: sample.max(),
                runs: sample.values.len(),
            };
            writeln!(text, "{}", serde_json::to_string(&line)?)?;
        }
        for note in &self.notes {
            writeln!(text, "{}", serde_json::to_string(&Note { bench, database, note })?)?;
        }
        Ok(text)
    }
}

impl Sample {
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        }
    }

    pub(super) fn min(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(super) fn max(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// For people: whole numbers in groups of three, small ones with two decimals.
fn rounded(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |digits| ("-", digits));
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_a_median_a_minimum_and_a_maximum() {
        let sample = |values: &[f64]| Sample {
            subject: String::new(),
            name: "rate",
            unit: "records/s",
            values: values.to_vec(),
        };
        let odd = sample(&[3.0, 1.0, 2.0]);
        assert_eq!((odd.min(), odd.median(), odd.max()), (1.0, 2.0, 3.0));
        assert_eq!(sample(&[4.0, 1.0, 2.0, 3.0]).median(), 2.5);
    }

    #[test]
    fn numbers_are_rounded_for_people() {
        assert_eq!(rounded(0.756), "0.76");
        assert_eq!(rounded(-999.6), "-1,000");
        assert_eq!(rounded(1_234_567.0), "1,234,567");
    }
}

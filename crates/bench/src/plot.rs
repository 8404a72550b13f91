//! Figures as SVG: curves over the time of a run, and histograms of waits.

use std::path::Path;

use plotters::{
    coord::Shift,
    prelude::{
        BLACK, ChartBuilder, Color, DrawingArea, IntoDrawingArea, IntoLogRange, LineSeries, Palette,
        Palette99, PathElement, SVGBackend, WHITE,
    },
};

use super::Result;

const SIZE: (u32, u32) = (960, 540);
/// Bars of a histogram for each factor of ten.
const BARS: f64 = 10.0;

/// A line of a plot.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) label: String,
    /// The unit of the vertical axis.
    pub(super) unit: &'static str,
    /// Seconds since the start, and the value then.
    pub(super) points: Vec<(f64, f64)>,
}

/// A distribution of times.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    pub(super) label: String,
    /// Each time.
    pub(super) millis: Vec<f64>,
}

/// Draws curves of one unit over their time.
pub(super) fn draw(file: &Path, title: &str, curves: &[Curve]) -> Result<()> {
    let most = |pick: fn(&(f64, f64)) -> f64| {
        curves.iter().flat_map(|curve| &curve.points).map(pick).fold(f64::MIN_POSITIVE, f64::max)
    };
    let unit = curves.first().map_or("", |curve| curve.unit);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    let mut chart = chart(&area, title)?
        .build_cartesian_2d(0.0..most(|point| point.0), 0.0..most(|point| point.1) * 1.05)?;
    let whole = |value: &f64| format!("{value:.0}");
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc(unit)
        .y_label_formatter(&whole)
        .max_light_lines(1)
        .draw()?;
    for (number, curve) in curves.iter().enumerate() {
        let style = Palette99::pick(number).stroke_width(2);
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), style))?
            .label(&curve.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

/// Draws the shares of the times over their logarithm.
pub(super) fn draw_histograms(file: &Path, title: &str, histograms: &[Histogram]) -> Result<()> {
    let outlines: Vec<Vec<(f64, f64)>> = histograms.iter().map(Histogram::outline).collect();
    let points = || outlines.iter().flatten();
    let least = points().map(|point| point.0).fold(f64::MAX, f64::min);
    let most = points().map(|point| point.0).fold(least, f64::max);
    let highest = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    let mut chart =
        chart(&area, title)?.build_cartesian_2d((least..most).log_scale(), 0.0..highest * 1.05)?;
    chart.configure_mesh().x_desc("ms").y_desc("% of the events").max_light_lines(1).draw()?;
    for (number, (histogram, outline)) in histograms.iter().zip(outlines).enumerate() {
        let style = Palette99::pick(number).stroke_width(2);
        chart
            .draw_series(LineSeries::new(outline, style))?
            .label(&histogram.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

fn chart<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, Shift>,
    title: &str,
) -> Result<ChartBuilder<'a, 'b, SVGBackend<'b>>> {
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area);
    chart.caption(title, ("sans-serif", 20)).margin(12).x_label_area_size(40).y_label_area_size(80);
    Ok(chart)
}

impl Histogram {
    /// The outline of the bars: the begin and the end of each, and its share in percent.
    fn outline(&self) -> Vec<(f64, f64)> {
        // A shorter time is drawn as one microsecond.
        let bar = |millis: &f64| (millis.max(1e-3).log10() * BARS).floor() as i32;
        let edge = |bar: i32| 10_f64.powf(f64::from(bar) / BARS);
        let (Some(first), Some(last)) =
            (self.millis.iter().map(bar).min(), self.millis.iter().map(bar).max())
        else {
            return Vec::new();
        };
        let share = |at: i32| {
            let inside = self.millis.iter().filter(|millis| bar(millis) == at).count();
            100.0 * inside as f64 / self.millis.len() as f64
        };
        let sides = (first..=last).flat_map(|at| {
            let height = share(at);
            [(edge(at), height), (edge(at + 1), height)]
        });
        [(edge(first), 0.0)].into_iter().chain(sides).chain([(edge(last + 1), 0.0)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn the_outline_of_a_histogram_begins_and_ends_on_the_ground() {
        let histogram = Histogram { label: String::new(), millis: vec![0.0, 1.1, 1.1, 1.1] };
        let outline = histogram.outline();
        let heights: Vec<f64> = outline.iter().map(|point| point.1).collect();
        assert_eq!((heights[0], heights[1]), (0.0, 25.0));
        assert_eq!(heights[heights.len() - 3..], [75.0, 75.0, 0.0]);
        assert!(outline.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }
}

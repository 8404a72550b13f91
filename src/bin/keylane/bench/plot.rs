//! Curves over the time of a run, as SVG.

use std::path::Path;

use plotters::prelude::{
    BLACK, ChartBuilder, Color, IntoDrawingArea, LineSeries, Palette, Palette99, PathElement, SVGBackend,
    WHITE,
};

use super::Result;

const SIZE: (u32, u32) = (960, 540);

/// A line of a plot.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) label: String,
    /// What is drawn upwards.
    pub(super) unit: &'static str,
    /// Seconds since the start, and the value then.
    pub(super) points: Vec<(f64, f64)>,
}

/// Draws curves of one unit over their time.
pub(super) fn draw(file: &Path, title: &str, curves: &[Curve]) -> Result<()> {
    let most = |pick: fn(&(f64, f64)) -> f64| {
        curves.iter().flat_map(|curve| &curve.points).map(pick).fold(f64::MIN_POSITIVE, f64::max)
    };
    let unit = curves.first().map_or("", |curve| curve.unit);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(80)
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

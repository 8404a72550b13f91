//! Subjects that are measured in turn, run after run, and compared within each run.

use std::fmt::Display;

use futures::future::BoxFuture;

use super::{Engine, Result, meter::Figure, options::Show, plot::Curve, report::Report, stage::Stage};

/// The figures of one run of a subject.
pub(super) struct Measured {
    figures: Vec<Figure>,
    curve: Option<Curve>,
}

impl<const N: usize> From<[Figure; N]> for Measured {
    fn from(figures: [Figure; N]) -> Self {
        Self { figures: figures.into(), curve: None }
    }
}

impl<F: Into<Vec<Figure>>> From<(F, Curve)> for Measured {
    fn from((figures, curve): (F, Curve)) -> Self {
        Self { figures: figures.into(), curve: Some(curve) }
    }
}

/// Measures each subject in turn, as many times as `--runs` says. Each run begins with another subject, and ends with
/// the ratios of the figures of each pair of subjects that were both measured.
///
/// # Errors
/// Those of the measurement.
pub(super) async fn in_turn<'a, E, S, M>(
    stage: &Stage<E>,
    show: &Show,
    report: &mut Report,
    mut subjects: Vec<S>,
    pairs: &[(S, S)],
    measure: impl Fn(S) -> BoxFuture<'a, Result<M>>,
) -> Result<()>
where
    E: Engine,
    S: Copy + PartialEq + Display,
    M: Into<Measured>,
{
    let runs = show.runs.get();
    for run in 1..=runs {
        let mut measured = Vec::new();
        for subject in subjects.iter().copied() {
            stage.bar.set_message(format!("run {run} of {runs}: {subject}"));
            let Measured { figures, curve } = measure(subject).await?.into();
            report.add_all(&subject.to_string(), &figures);
            curve.into_iter().for_each(|curve| report.curve(curve));
            measured.push((subject, figures));
        }
        let of = |wanted| measured.iter().find(|(subject, _)| *subject == wanted).map(|(_, figures)| figures);
        for (ours, theirs) in pairs.iter().copied() {
            let figures = of(ours).into_iter().flatten().zip(of(theirs).into_iter().flatten());
            let ratios: Vec<Figure> = figures.map(|(ours, theirs)| ours.over(theirs)).collect();
            report.add_all(&format!("{ours} / {theirs}"), &ratios);
        }
        subjects.rotate_left(1);
    }
    Ok(())
}

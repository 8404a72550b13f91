//! What is seen meanwhile: a picture that is drawn over and over on a terminal, plain lines elsewhere.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write as _, stdout},
    time::Duration,
};

use crossterm::{
    cursor::{Hide, MoveToPreviousLine, Show},
    execute,
    style::{Color, Stylize},
    terminal::{Clear, ClearType, size},
};

const GRID_COLUMNS: usize = 32;
const BAR_WIDTH: usize = 44;
/// Lines of "what has happened" in the picture.
const NOTES: usize = 8;
/// The smallest terminal that the picture fits into.
const LEAST_SIZE: (u16, u16) = (80, 24);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Live,
    Killed,
    /// Shut down in good order.
    Left,
}

/// What is shown of a replica.
pub(crate) struct Card {
    pub(crate) number: usize,
    pub(crate) state: State,
    pub(crate) partitions: usize,
    pub(crate) entered: usize,
    pub(crate) rate: f64,
}

/// All that is shown.
pub(crate) struct Scene<'a> {
    pub(crate) elapsed: Duration,
    pub(crate) flights: usize,
    pub(crate) scheduled: usize,
    pub(crate) delivered: usize,
    pub(crate) retried: usize,
    pub(crate) fallback: usize,
    pub(crate) rate: f64,
    /// The replica that owns each partition.
    pub(crate) owners: &'a [Option<usize>],
    pub(crate) cards: Vec<Card>,
    pub(crate) notes: &'a [(Duration, String)],
    /// Nothing comes after it.
    pub(crate) last: bool,
}

/// The place to draw on.
pub(crate) struct View {
    title: String,
    terminal: bool,
    /// Lines of the picture that stands there.
    drawn: u16,
    noted: usize,
    next_line: Duration,
}

impl View {
    pub(crate) fn new(database: &str) -> Self {
        let title = format!("A week of flights through replicas that share {database}, and nothing else");
        let large = size().is_ok_and(|(width, height)| width >= LEAST_SIZE.0 && height >= LEAST_SIZE.1);
        let terminal = stdout().is_terminal() && large;
        if terminal {
            let _ = execute!(stdout(), Hide);
        }
        Self { title, terminal, drawn: 0, noted: 0, next_line: Duration::ZERO }
    }

    pub(crate) fn draw(&mut self, scene: &Scene) -> io::Result<()> {
        if self.terminal { self.picture(scene) } else { self.lines(scene) }
    }

    fn lines(&mut self, scene: &Scene) -> io::Result<()> {
        let mut out = stdout().lock();
        if self.next_line.is_zero() {
            writeln!(out, "{}", self.title)?;
        }
        for (at, note) in &scene.notes[self.noted..] {
            writeln!(out, "{:5.1} s  * {note}", at.as_secs_f64())?;
        }
        self.noted = scene.notes.len();
        if scene.elapsed >= self.next_line && !scene.last {
            self.next_line = scene.elapsed + Duration::from_secs(1);
            let shares: Vec<String> =
                scene.cards.iter().map(|card| format!("{}:{}", card.number, card.partitions)).collect();
            writeln!(
                out,
                "{:5.1} s  scheduled {:>5}  delivered {:>5}  {:>3.0}/s  partitions {}",
                scene.elapsed.as_secs_f64(),
                number(scene.scheduled),
                number(scene.delivered),
                scene.rate,
                shares.join(" ")
            )?;
        }
        out.flush()
    }

    fn picture(&mut self, scene: &Scene) -> io::Result<()> {
        let mut lines = vec![
            self.title.as_str().bold().to_string(),
            String::new(),
            bar("scheduled", scene.scheduled, scene.flights, Color::DarkGrey),
            bar("delivered", scene.delivered, scene.flights, Color::Green),
            format!(
                "           {:.0} a second · {} failed once and retried · {} by fallback · {:.1} s",
                scene.rate,
                scene.retried,
                scene.fallback,
                scene.elapsed.as_secs_f64()
            ),
            String::new(),
        ];
        lines.extend(grid(scene));
        lines.push(String::new());
        let shown = &scene.notes[scene.notes.len().saturating_sub(NOTES)..];
        lines.extend(shown.iter().map(|(at, note)| format!("{:5.1} s  {note}", at.as_secs_f64())));
        lines.resize(lines.len() + NOTES - shown.len(), String::new());
        let mut out = stdout().lock();
        if self.drawn > 0 {
            execute!(out, MoveToPreviousLine(self.drawn))?;
        }
        for line in &lines {
            write!(out, "{line}{}\r\n", Clear(ClearType::UntilNewLine))?;
        }
        self.drawn = lines.len() as u16;
        out.flush()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.terminal {
            let _ = execute!(stdout(), Show);
        }
    }
}

/// The partitions, coloured by their owners; beside them the replicas.
fn grid(scene: &Scene) -> Vec<String> {
    let dead =
        |owner: usize| scene.cards.iter().any(|card| card.number == owner && card.state == State::Killed);
    let cell = |owner: &Option<usize>| match owner {
        None => "·".to_owned().dark_grey(),
        Some(owner) if dead(*owner) => "x".to_owned().white().on_dark_red(),
        Some(owner) => owner.to_string().black().on(color(*owner)),
    };
    let mut lines = Vec::new();
    for row in scene.owners.chunks(GRID_COLUMNS) {
        let mut line = String::from("  ");
        row.iter().for_each(|owner| write!(line, "{}", cell(owner)).unwrap_or_default());
        lines.push(line);
    }
    let unowned = scene.owners.iter().filter(|owner| owner.is_none()).count();
    let mut beside = vec!["256 partitions by owner".to_owned()];
    for Card { number: replica, state, partitions, entered, rate } in &scene.cards {
        let name = format!(" replica {replica} ");
        let name = if *state == State::Killed {
            name.white().on_dark_red()
        } else {
            name.black().on(color(*replica))
        };
        let state = match state {
            State::Live => format!("{rate:4.0}/s"),
            State::Killed => "killed".to_owned(),
            State::Left => "left".to_owned(),
        };
        beside.push(format!("{name} {partitions:>3} partitions {:>6} done {state:>6}", number(*entered)));
    }
    beside.resize(6.max(beside.len()), String::new());
    beside.push(format!("{} nobody    {unowned:>3} partitions", "·".dark_grey()));
    for (line, beside) in lines.iter_mut().zip(beside) {
        line.push_str("   ");
        line.push_str(&beside);
    }
    lines
}

fn bar(name: &str, count: usize, of: usize, color: Color) -> String {
    let filled = (count * BAR_WIDTH / of.max(1)).min(BAR_WIDTH);
    let (full, empty) = ("█".repeat(filled), "░".repeat(BAR_WIDTH - filled));
    format!("{name:>10} {}{} {} of {}", full.with(color), empty.dark_grey(), number(count), number(of))
}

fn color(replica: usize) -> Color {
    [Color::Cyan, Color::Magenta, Color::Green, Color::Yellow][(replica + 3) % 4]
}

/// With a comma between thousands.
pub(crate) fn number(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}

//! Histories: any bytes are events, or an error with the number of the line that is no event.

use keylane_checker::{
    Event, Expect, Judge,
    history::{line, parse},
};

pub(crate) fn run(data: &[u8]) {
    let mut events = Vec::new();
    match parse(data, &mut events) {
        Ok(()) => {
            is_written_back(&events);
            // A killed process leaves a part of a line.
            let mut cut =
                if data.is_empty() || data.ends_with(b"\n") { data.to_vec() } else { return judge(&events) };
            cut.extend(b"{\"at\":1,\"pro");
            assert_eq!(parsed(&cut).expect("the last line may be cut"), events);
            judge(&events);
        }
        Err((number, _)) => {
            let lines: Vec<&[u8]> = data.split_inclusive(|byte| *byte == b'\n').collect();
            assert!((1..=lines.len()).contains(&number), "line {number} of {}", lines.len());
            assert_eq!(parsed(&lines[..number - 1].concat()).expect("lines before it are events"), events);
            assert!(parsed(lines[number - 1]).is_err(), "line {number} is an event");
        }
    }
}

fn parsed(bytes: &[u8]) -> Result<Vec<Event>, (usize, serde_json::Error)> {
    let mut events = Vec::new();
    parse(bytes, &mut events)?;
    Ok(events)
}

fn is_written_back(events: &[Event]) {
    let lines: Vec<Vec<u8>> =
        events.iter().map(|event| line(event).expect("an event can be written")).collect();
    assert_eq!(parsed(&lines.concat()).expect("and read"), events);
}

/// The judge comes to a verdict on any events.
fn judge(events: &[Event]) {
    let mut judge = Judge::new(Expect::default());
    if events.iter().all(|event| judge.take(event).is_ok()) {
        let _ = judge.finish();
    }
}

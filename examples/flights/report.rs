//! The verdict in words and numbers.

use std::time::Duration;

use keylane_checker::Invariant;

use crate::{settings, show::Course, verdict::Verdict, view::number};

/// Prints the verdict; true if it is good.
pub(crate) fn print(verdict: &Verdict, course: &Course) -> bool {
    let limit = settings::takeover_limit();
    println!("\nWhat the ledgers of the replicas come to, compared with the week:\n");
    for (name, value, text) in rows(verdict, course, limit) {
        println!("  {name:<15}{value:>8}   {text}");
    }
    let problems = verdict.problems(course, limit);
    println!("\nVERDICT: {}", if problems.is_empty() { "good" } else { "BAD" });
    problems.iter().for_each(|problem| println!("  - {problem}"));
    problems.is_empty()
}

fn rows(verdict: &Verdict, course: &Course, limit: Duration) -> [(&'static str, String, String); 12] {
    let seconds = verdict.span.as_secs_f64();
    let rate = (verdict.delivered + verdict.fallback) as f64 / seconds.max(0.001);
    let time = |time: Option<Duration>| {
        time.map_or("never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
    };
    let victim = course.victim;
    let order = [Invariant::FirstAttempts, Invariant::StopOnFailure, Invariant::Lease, Invariant::OneOwner];
    let killed = format!(
        "replica {victim} was killed: {} half done, {} unreported",
        verdict.interrupted, verdict.unreported
    );
    let until = format!("until others owned its partitions (limit {:.1} s)", limit.as_secs_f64());
    [
        ("records in", number(verdict.records), format!("flights with {} keys", number(verdict.keys))),
        ("delivered", number(verdict.delivered), "entered by the bookkeeper".to_owned()),
        ("by fallback", number(verdict.fallback), "cancelled, refused by the bookkeeper".to_owned()),
        ("retried", number(verdict.retried), "failed once; later flights of the aircraft waited".to_owned()),
        ("lost", number(verdict.lost), "in no ledger".to_owned()),
        (
            "out of order",
            number(verdict.violations(&order)),
            format!("per aircraft; {} had to wait for an earlier flight", number(verdict.waited)),
        ),
        ("duplicates", number(verdict.unreported + verdict.interrupted), killed),
        ("", number(verdict.violations(&[Invariant::Replays])), "for any other reason".to_owned()),
        ("lapsed leases", number(course.lapses), "heartbeats without a reply, as on a slow disk".to_owned()),
        ("takeover", time(course.takeover), until),
        ("", time(verdict.first_after_kill), "until the next flight of an aircraft it had served".to_owned()),
        ("rate", format!("{rate:.0}/s"), format!("over {seconds:.1} s")),
    ]
}

//! The verdict in words and numbers.

use crate::{settings, show::Course, verdict::Verdict, view::number};

/// Prints the verdict; true if it is good.
pub fn print(verdict: &Verdict, course: &Course) -> bool {
    let limit = settings::takeover_limit();
    let again = verdict.twice + verdict.interrupted;
    let seconds = verdict.span.as_secs_f64();
    let rate = (verdict.delivered + verdict.fallback) as f64 / seconds.max(0.001);
    let time = |time: Option<std::time::Duration>| {
        time.map_or("-".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
    };
    let line = |name: &str, value: String, text: String| println!("  {name:<18}{value:>8}   {text}");
    println!("\nThe ledgers of the replicas against the week:\n");
    line("records in", number(verdict.records), format!("flights of {} aircraft", number(verdict.aircraft)));
    line("delivered", number(verdict.delivered), "entered by the bookkeeper".to_owned());
    line("by fallback", number(verdict.fallback), "cancelled: refused by the bookkeeper".to_owned());
    line("retried", number(verdict.retried), "failed once; the aircraft's later flights waited".to_owned());
    line("lost", number(verdict.lost), String::new());
    line("out of order", number(verdict.out_of_order), "per aircraft, over all processes".to_owned());
    let cause = format!(
        "of replica {}, killed: {} it had in hand, {} it had done but not reported",
        course.victim, verdict.interrupted, verdict.twice
    );
    line("handled again", number(again), if again == 0 { String::new() } else { cause });
    line("  unexplained", number(verdict.unexplained), String::new());
    let after = format!("limit {:.1} s; next flight of its aircraft after {}", limit.as_secs_f64(), time(verdict.first_after_kill));
    line("takeover", time(course.takeover), after);
    line("rate", format!("{rate:.0}/s"), format!("over {seconds:.1} s"));
    let problems = verdict.problems(course, limit);
    println!("\nVERDICT: {}", if problems.is_empty() { "good" } else { "BAD" });
    problems.iter().for_each(|problem| println!("  - {problem}"));
    problems.is_empty()
}

//! Words that were replaced by better ones stay out. `docs/glossary.md` has the words in use.

use std::{fs, path::Path};

use crate::{files, report};

/// Identifiers that were replaced, and what to say instead.
const RETIRED: &[(&str, &str)] = &[
    ("sweep", "scan_by_id"),
    ("sweeps", "scans"),
    ("Sweep", "IdScan"),
    ("Probe", "Head, or Plan::FindHead"),
    ("probed", "head_found"),
    ("swept", "scanned"),
    ("Plan::Apart", "Plan::ByPartition"),
    ("look_apart", "fetch_by_partition_next"),
    ("fetch_apart", "fetch_by_partition_next"),
    ("frontier", "low watermark"),
    ("Frontier", "LowWatermark"),
    ("final_to", "resolved_to"),
    ("Guard", "FenceRow"),
    ("guard_rows", "fence_rows"),
    ("guard row", "fence row"),
    ("guard rows", "fence rows"),
    ("move_guard", "move_fence"),
    ("raise_guard", "invalidate_fence"),
    ("raised()", "invalidated()"),
    ("mend", "repair for what people do to failed records, else fix"),
    ("mended", "repaired, or fixed"),
    ("mending", "repairing, or fixing"),
    ("Mend", "Repair"),
    ("mend_all", "repair_all"),
    ("forget_instances", "purge_instances"),
    ("forget_instances_after", "purge_instances_after"),
    ("note_call", "track_call"),
    ("end_call", "end_tracking"),
    ("Noted", "Tracked"),
    ("bell", "notifier"),
    ("Bell", "Notifier"),
    ("PgBell", "PgNotifier"),
    ("PgEar", "PgNotifyListener"),
    ("Hearing", "ListenState"),
    ("heard()", "recv()"),
    ("Beheld", "ViewSnapshot"),
    ("Beating", "HeartbeatTask"),
    ("Takes::", "RecordTypes::"),
    ("many_within", "transactional_batch_call"),
    ("Registration::many", "Registration::batch_call"),
    ("Registration::within", "Registration::transactional_call"),
    ("Looker", "Fetcher"),
    ("looker", "fetcher"),
    ("sqlx_looks", "sqlx_fetches"),
    ("a look", "a fetch, a view or a sample"),
    ("the next look", "the next fetch, view or sample"),
    ("tainted", "stale"),
    ("barren", "exhausted"),
    ("Surroundings", "ExecContext"),
    ("leave_behind", "mark_missed"),
    ("AfterFailure", "OnFailure"),
    ("OnFailed", "OnFailure"),
    ("on_failed", "on_failure"),
    ("after_failure", "on_failure"),
    ("give_back", "requeue, or return_connection"),
    ("POLLS_A_LOOK", "POLLS_PER_SEARCH"),
    ("partitions_a_search", "partitions_per_search"),
    ("final id", "resolved id"),
    ("note_dedup_key", "insert_dedup_key"),
    ("NoteDedupKey", "InsertDedupKey"),
    ("note_change", "count_change"),
    ("note_changes", "publish_changes"),
    ("note_version", "write_version"),
    ("note_wait", "track_wait"),
    ("note_unowned", "set_unowned, or report_unowned"),
    ("journal.note", "journal.push"),
    ("ledger.note", "ledger.push"),
    ("forget_overdue", "clear_overdue"),
    ("forget_from", "remove_from"),
    ("forget_below", "remove_below"),
    ("Room::", "BudgetStep::"),
    ("budget.room", "budget.next_step"),
    ("rules::seen", "rules::id_ranges"),
    ("Ear", "Waiter"),
    ("Ears", "Waiters"),
    ("ear.look", "waiter.read_begins"),
    ("ring_all", "notify_all"),
];

/// Pages outside of `docs`. The list of changes keeps the words of its time.
const PAGES: [&str; 4] = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"];

/// Files and folders that may have retired words, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("docs/decisions/", "a decision keeps the words of its day"),
    ("docs/glossary.md", "it also lists the words of other products"),
    ("tests/tidy/words.rs", "it has the list of retired words"),
];

/// Whether the text has this word, and not only as a part of a longer one. A hyphen joins, so the name of a file is
/// one word.
fn has(text: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let ends_open = word.ends_with(joins);
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let is_part = before.is_some_and(joins) || (ends_open && after.is_some_and(joins));
        !is_part
    })
}

#[test]
fn retired_words_stay_out() {
    let folders = ["src", "crates", "tests", "benches", "examples", "docs"];
    let mut texts: Vec<_> = folders[..5].iter().flat_map(|folder| files(folder, "rs")).collect();
    texts.extend(files("src", "sql"));
    texts.extend(files(folders[5], "md"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    texts.extend(PAGES.map(|page| (page.to_owned(), fs::read_to_string(root.join(page)).unwrap())));
    let mut problems = Vec::new();
    for (file, text) in texts {
        if EXCEPTIONS.iter().any(|(name, _)| file.starts_with(name)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let retired = RETIRED.iter().filter(|(word, _)| has(line, word));
            problems
                .extend(retired.map(|(word, say)| format!("{file}:{}: \"{word}\": say {say}", number + 1)));
        }
    }
    report(problems);
}

#[test]
fn exceptions_are_still_needed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let gone = EXCEPTIONS.iter().filter(|(name, _)| !root.join(name).exists());
    report(gone.map(|(name, reason)| format!("{name} is gone ({reason})")).collect());
}

#[test]
fn a_word_is_found_by_itself_only() {
    assert!(has("let frontier = 1;", "frontier") && has("`frontier`", "frontier"));
    assert!(!has("a-frontier.md", "frontier") && !has("frontiers", "frontier"));
    assert!(has("Takes::every()", "Takes::") && !has("MutexGuard", "Guard"));
}

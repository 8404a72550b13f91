//! The sentence for an unknown key or an invalid value.

/// A name is suggested if at most so many letters differ.
const NEAR: usize = 3;

/// The error of the parser as one sentence, which begins with the whole path of the key.
pub(super) fn refusal(within: &str, told: &str) -> String {
    let mut lines = told.lines();
    let problem = lines.next().unwrap_or_default();
    // The parser adds the table in a line of its own: in `delivery`.
    let table = lines.find_map(|line| line.strip_prefix("in `")?.strip_suffix('`'));
    let path: Vec<&str> =
        [Some(within), table].into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let path = path.join(".");
    let Some(rest) = problem.strip_prefix("unknown field `") else {
        return if path.is_empty() { problem.to_owned() } else { format!("{path}: {problem}") };
    };
    let mut names = rest.split('`');
    let unknown = names.next().unwrap_or_default();
    // Between two names stand a comma or an "or".
    let known: Vec<&str> = names.skip(1).step_by(2).collect();
    let whole = if path.is_empty() { unknown.to_owned() } else { format!("{path}.{unknown}") };
    let nearest = known.iter().map(|name| (strsim::damerau_levenshtein(unknown, name), *name)).min();
    match nearest.filter(|(distance, _)| *distance <= NEAR) {
        Some((_, name)) => format!("the key {whole} is unknown: did you mean {name}?"),
        None => format!("the key {whole} is unknown: it can be {}", known.join(", ")),
    }
}

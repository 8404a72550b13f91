//! The `traceparent` and `tracestate` of a request, as W3C Trace Context has them.

use http::HeaderMap;

use super::single;

/// The longest `tracestate` that goes on, in bytes: what the recommendation asks for at least.
const LONGEST_STATE: usize = 512;
/// The length of a version 00: `00-{trace id}-{parent id}-{flags}`.
const LENGTH: usize = 55;

/// A valid parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    text: String,
    state: Option<String>,
}

impl Parent {
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = single(headers, "traceparent").filter(|text| is_valid(text))?.to_owned();
        let state = single(headers, "tracestate");
        let plain = |state: &&str| {
            (1..=LONGEST_STATE).contains(&state.len())
                && state.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        Some(Self { text, state: state.filter(plain).map(str::to_owned) })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    pub(super) fn trace_id(&self) -> &str {
        self.text.split('-').nth(1).unwrap_or_default()
    }
}

/// Whether it is version 00, or begins as one of a later version, which may have more after it.
fn is_valid(text: &str) -> bool {
    let Some((known, rest)) = text.split_at_checked(LENGTH) else { return false };
    let parts: Vec<&str> = known.split('-').collect();
    let [version, trace, parent, flags] = parts[..] else { return false };
    let hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let some = |part: &str| part.bytes().any(|byte| byte != b'0');
    let ends = rest.is_empty() || (version != "00" && rest.starts_with('-') && rest.len() <= 2 * LENGTH);
    let plain = rest.bytes().all(|byte| byte.is_ascii_graphic());
    hex(version, 2)
        && version != "ff"
        && hex(trace, 32)
        && some(trace)
        && hex(parent, 16)
        && some(parent)
        && hex(flags, 2)
        && ends
        && plain
}

#[cfg(test)]
mod tests {
    use super::is_valid;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn parents_are_those_of_the_recommendation() {
        let good = [format!("00-{TRACE}-{SPAN}-01"), format!("cc-{TRACE}-{SPAN}-00-what-comes")];
        for text in good {
            assert!(is_valid(&text), "{text}");
        }
        let zero = "0".repeat(32);
        let upper = TRACE.to_uppercase();
        let bad = [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{zero}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{upper}-{SPAN}-01"),
            format!("cc-{TRACE}-{SPAN}-00x"),
            format!("cc-{TRACE}-{SPAN}-00-{}", "x".repeat(200)),
            format!("00-{TRACE}-{SPAN}-é"),
        ];
        for text in bad {
            assert!(!is_valid(&text), "{text}");
        }
    }
}

//! Key templates: `aircraft-{tail}`, with the fields of an event in braces.

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text as it is, braces unescaped.
    Text(String),
    /// A field, and how it is formatted.
    Field {
        /// The field, and the fields within it.
        path: Vec<String>,
        /// What stands after the colon, empty without one.
        spec: String,
    },
}

impl Piece {
    /// Its text; none for a field.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Field { .. } => String::new(),
        }
    }
}

/// The longest key, in bytes.
const LIMIT_BYTES: usize = 255;

/// The pieces of a template, or a sentence that says what is wrong with it.
pub(crate) fn parse(template: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            // A doubled brace is a brace.
            '{' | '}' if rest.starts_with(c) => {
                text.push(c);
                rest = &rest[1..];
            }
            '{' => {
                let Some((placeholder, after)) = rest.split_once('}') else {
                    return Err(
                        "the key has a `{` without its `}`: close it, or write `{{` for a brace".to_owned()
                    );
                };
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(field(placeholder)?);
                rest = after;
            }
            '}' => {
                return Err(
                    "the key has a `}` without its `{`: open it, or write `}}` for a brace".to_owned()
                );
            }
            '\0' => return Err("the key contains a NUL, which no database stores: leave it out".to_owned()),
            _ => text.push(c),
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    check_length(&pieces)?;
    Ok(pieces)
}

/// The template as the macro `format!` reads it, its fields as arguments in order.
pub(crate) fn format_string(pieces: &[Piece]) -> String {
    let write = |piece: &Piece| match piece {
        Piece::Text(text) => text.replace('{', "{{").replace('}', "}}"),
        Piece::Field { spec, .. } if spec.is_empty() => "{}".to_owned(),
        Piece::Field { spec, .. } => format!("{{:{spec}}}"),
    };
    pieces.iter().map(write).collect()
}

fn field(placeholder: &str) -> Result<Piece, String> {
    let (path, spec) = placeholder.split_once(':').unwrap_or((placeholder, ""));
    let path: Vec<String> = path.trim().split('.').map(str::to_owned).collect();
    if path.iter().any(|name| !is_member(name)) {
        return Err(format!(
            "`{{{placeholder}}}` does not name a field: write `{{id}}`, `{{0}}` or `{{order.id}}`"
        ));
    }
    if spec.contains('?') {
        return Err(format!(
            "`{{{placeholder}}}` uses the Debug form, which may change and would then split the key: \
             use a field with Display"
        ));
    }
    if spec.contains(['$', '*', '{']) {
        return Err(format!("`{{{placeholder}}}` takes its width from elsewhere: write it as a number"));
    }
    Ok(Piece::Field { path, spec: spec.to_owned() })
}

fn is_member(name: &str) -> bool {
    let is_index = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    is_index || syn::parse_str::<syn::Ident>(name).is_ok()
}

fn check_length(pieces: &[Piece]) -> Result<(), String> {
    let text = |piece: &Piece| if let Piece::Text(text) = piece { text.len() } else { 0 };
    match pieces.iter().map(text).sum::<usize>() {
        _ if pieces.is_empty() => Err("the key is empty: name a field, as in `order-{id}`".to_owned()),
        bytes if bytes > LIMIT_BYTES => {
            Err(format!("the key has {bytes} bytes without its fields: a key has at most {LIMIT_BYTES}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, formatted: &str, fields: &[&str]) {
        let pieces = parse(template).unwrap();
        assert_eq!(format_string(&pieces), formatted);
        let named: Vec<String> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Field { path, .. } => Some(path.join(".")),
                Piece::Text(_) => None,
            })
            .collect();
        assert_eq!(named, fields);
    }

    #[test]
    fn fields_are_found() {
        check("aircraft-{tail}", "aircraft-{}", &["tail"]);
        check("{0}/{1.id}", "{}/{}", &["0", "1.id"]);
        check("{order.id:05}", "{:05}", &["order.id"]);
        check("{day:>10}{r#type}", "{:>10}{}", &["day", "r#type"]);
        check("größe-{x}", "größe-{}", &["x"]);
    }

    #[test]
    fn doubled_braces_are_text() {
        check("{{{a}}}", "{{{}}}", &["a"]);
        check("{{all}}", "{{all}}", &[]);
    }

    #[test]
    fn bad_templates_are_refused_with_the_reason() {
        let refused = |template: &str, reason: &str| {
            let problem = parse(template).unwrap_err();
            assert!(problem.contains(reason), "{template:?}: {problem}");
        };
        refused("", "is empty");
        refused("order-{id", "without its `}`");
        refused("order-id}", "without its `{`");
        refused("order-{}", "does not name a field");
        refused("{order.}", "does not name a field");
        refused("{a b}", "does not name a field");
        refused("{type}", "does not name a field");
        refused("{id:?}", "Debug");
        refused("{id:w$}", "as a number");
        refused("a\0", "NUL");
        refused(&"x".repeat(256), "256 bytes");
    }
}

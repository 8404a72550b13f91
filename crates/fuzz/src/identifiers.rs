//! Names of tables are accepted or refused with a sentence, and no value of a record stands in a statement.
//!
//! The lines of an input are prefix, schema, key, handler, record type, media type and dedup key. The rest is the
//! payload.

use keylane::{Config, Name, inner::Tables, partition::Partition};

use crate::record::{inserted, record, statements, text};

pub(crate) fn run(data: &[u8]) {
    let input = String::from_utf8_lossy(data);
    let mut lines = input.splitn(8, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (prefix, schema) = (line(), Some(line()).filter(|schema| !schema.is_empty()));
    let tables = tables(prefix, schema);

    let mut given = record(line());
    given.handler = line().into();
    given.record_type = line().into();
    given.content_type = line().into();
    let dedup_key = line();
    given.payload = line().as_bytes().to_vec();
    names_are_texts(&given.key);
    let plain = statements(&tables, &record("order-42"), Some("request-17"));
    let made = statements(&tables, &given, Some(dedup_key));
    for (made, plain) in made.iter().zip(&plain) {
        assert!(
            made.iter().map(|made| &made.text).eq(plain.iter().map(|plain| &plain.text)),
            "a value stands in a statement: {made:?}"
        );
        let values = inserted(made);
        let texts = [given.key.as_str(), &given.handler, &given.record_type, &given.content_type];
        assert!(values[2..6].iter().map(text).eq(texts), "{values:?}");
        assert_eq!(text(&made[0].values[0]), dedup_key);
    }
}

/// The names of the tables, if they are accepted. Names are accepted if they need no quotes in any database.
fn tables(prefix: &str, schema: Option<&str>) -> Tables {
    let prefix_is_plain = is_plain(prefix, 32);
    let schema_is_plain = schema.is_none_or(|schema| is_plain(schema, 40));
    let mut config = Config::default().table_prefix(prefix);
    config.schema = schema.map(str::to_owned);
    let problems = config.validate().map_or_else(|error| error.problems, |()| Vec::new());
    match Tables::new(schema, prefix) {
        Ok(tables) => {
            assert!(prefix_is_plain && schema_is_plain, "{prefix:?} or {schema:?} is accepted");
            assert_eq!(problems, Vec::<String>::new());
            assert_eq!((tables.prefix(), tables.schema()), (prefix, schema));
            only_the_names_differ(&tables);
            tables
        }
        Err(refused) => {
            let sentence = refused.to_string();
            let (what, name, limit) = match prefix_is_plain {
                false => ("table_prefix", prefix, 32),
                true => ("schema", schema.unwrap_or_default(), 40),
            };
            assert!(!prefix_is_plain || !schema_is_plain, "{sentence}");
            let begin = format!("{what} {name:?} is not valid: use at most {limit} ");
            assert!(sentence.starts_with(&begin) && !sentence.contains(char::is_control), "{sentence}");
            assert_eq!(problems, [sentence]);
            Tables::default()
        }
    }
}

fn is_plain(name: &str, limit: usize) -> bool {
    let rest = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_');
    (1..=limit).contains(&name.len()) && name.chars().all(rest) && !name.starts_with(|c: char| c.is_numeric())
}

/// The statements of an outbox with other names are those of the default with the names replaced.
fn only_the_names_differ(tables: &Tables) {
    let record = record("order-42");
    let usual = statements(&Tables::default(), &record, Some("request-17"));
    let named = statements(tables, &record, Some("request-17"));
    for (named, usual) in named.iter().flatten().zip(usual.iter().flatten()) {
        assert_eq!(named.text, usual.text.replace("outbox_", &tables.qualifier()));
    }
}

/// A name is read, compared, sorted and stored as its text.
fn names_are_texts(text: &str) {
    let name = Name::from(text);
    assert!(name == *text && name.as_str() == text && *String::from(name.clone()) == *text);
    assert_eq!(format!("{name} {name:?}"), format!("{text} {text:?}"));
    let stored = serde_json::to_string(&name).expect("a text can be written");
    assert_eq!(serde_json::from_str::<Name>(&stored).expect("and read"), name);
    assert_eq!(Partition::of(&name), Partition::of(text));
}

//! `keylane bench goals` and `check`: a line of JSON a goal, an exit code that says what it should.

use super::keylane::{File, bench, lines, on_postgres};

#[tokio::test]
async fn goals_are_printed_with_their_bounds() {
    on_postgres("goals", async |url| {
        let words = ["goals", "--quick", "--runs", "2", "--only", "scale-ticks,memory", "--"];
        // What only one measurement knows is refused by the other.
        let [memory, scale] = &lines(url, &[&words[..], &["--keys", "100"]].concat())[..] else {
            panic!("two lines");
        };
        assert_eq!((&memory["goal"], &memory["unit"]), (&"memory".into(), &"MiB".into()));
        assert_eq!((&memory["runs"], &memory["bound"]), (&2.into(), &"<= 100".into()));
        let [value, min, max] = ["value", "min", "max"].map(|name| memory[name].as_f64().unwrap());
        assert!(min <= value && value <= max, "{memory}");
        assert_eq!(memory["holds"], value <= 100.0);
        assert!(memory.get("error").is_none());

        assert_eq!(scale["goal"], "scale-ticks");
        assert!(scale["value"].is_null() && scale["holds"] == false, "{scale}");
        assert!(scale["error"].as_str().unwrap().contains("--keys"), "{scale}");
    })
    .await;
}

#[test]
fn an_unknown_goal_is_refused_with_those_that_there_are() {
    let output = bench(&File::new("unknown").url(), &["goals", "--only", "speed"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("drain-sqlite") && !err.contains("drain-mariadb"), "{err}");
}

#[test]
fn the_check_fails_if_its_line_says_so() {
    let output = bench(&File::new("check").url(), &["check", "--runs", "1"]);
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&line["goal"], &line["bound"]), (&"drain-loop".into(), &">= 0.4".into()));
    assert_eq!(output.status.success(), line["holds"] == true, "{line}");
}

//! `keylane relay --check`: prints one line per requirement of the relay, and relays nothing.

use std::{process::ExitCode, time::Duration};

use keylane::SchemaError;
use keylane_message::Route;
use tokio::time::timeout;

use super::{Plan, Source, config::Routes, database::Opened, rights};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The lines so far.
struct Report {
    bad: bool,
}

impl Report {
    fn line(&self, word: &str, subject: &str, text: &str) {
        println!("{word:<5} {subject:<10} {text}");
    }

    fn good(&self, subject: &str, text: &str) {
        self.line("ok", subject, text);
    }

    fn warning(&self, subject: &str, text: &str) {
        self.line("warn", subject, text);
    }

    fn bad(&mut self, subject: &str, text: &str) {
        self.bad = true;
        self.line("BAD", subject, text);
    }
}

/// Prints the lines; the code is 1 if one of them is bad.
pub(crate) async fn run(source: &Source) -> ExitCode {
    let mut report = Report { bad: false };
    match Plan::read(source) {
        Ok(plan) => all(&plan, &mut report).await,
        Err(error) => report.bad("settings", &error.to_string()),
    }
    if report.bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

async fn all(plan: &Plan, report: &mut Report) {
    report.good("settings", "every key is known and in its range");
    match plan.open().await {
        Ok(opened) => {
            let Routes { topics, endpoints } = plan.relay.routes().unwrap_or_default();
            report.good("routes", &format!("{} to topics, {} to endpoints", topics.len(), endpoints.len()));
            database(plan, &opened, report).await;
        }
        Err(error) => report.bad("routes", &error.to_string()),
    }
    topics(plan, report).await;
}

async fn database(plan: &Plan, opened: &Opened, report: &mut Report) {
    let outbox = &*opened.outbox;
    let redact = |error: &dyn std::error::Error| plan.secrets.redact(&error.to_string());
    match timeout(PATIENCE, outbox.connect()).await {
        Ok(Ok(())) => report.good("database", "it answers"),
        Ok(Err(error)) => return report.bad("database", &redact(&error)),
        Err(_) => return report.bad("database", &format!("no answer within {PATIENCE:?}")),
    }
    match timeout(PATIENCE, outbox.check()).await {
        Ok(Ok(())) => report.good("schema", "the tables fit this build"),
        Ok(Err(error @ (SchemaError::Missing | SchemaError::Older { .. }))) => {
            let text = error.to_string().replace("call Outbox::migrate()", "run `keylane migrate`");
            return report.bad("schema", &text);
        }
        Ok(Err(error)) => return report.bad("schema", &redact(&error)),
        Err(_) => return report.bad("schema", &format!("no answer within {PATIENCE:?}")),
    }
    match rights::missing(outbox, &plan.config).await {
        None => report.good("rights", "the user may do what workers do"),
        Some(missing) => {
            let fix = "run what `keylane grants worker --to USER` prints";
            report.bad("rights", &format!("{}; {fix}", plan.secrets.redact(&missing)));
        }
    }
    let others = rights::other_handlers(outbox, &plan.config, &plan.relay.handlers()).await;
    if !others.is_empty() {
        let text = "listed beside the relay, which cannot deliver to them: give the relay an outbox of its own \
                    (table_prefix), or retire them";
        report.warning("handlers", &format!("{}: {text}", others.join(", ")));
    }
    let Routes { topics, endpoints } = plan.relay.routes().unwrap_or_default();
    for (handler, routes) in plan.relay.handlers().iter().zip([topics, endpoints]) {
        let left = rights::left_over(outbox, &plan.config, handler, &routes).await;
        if !left.is_empty() {
            let text = "listed for producers, but no route takes them: add a route, or delete them from the table of \
                        handlers";
            report.warning("handlers", &format!("{handler} {}: {text}", left.join(", ")));
        }
    }
}

async fn topics(plan: &Plan, report: &mut Report) {
    let Some(kafka) = &plan.relay.kafka else { return };
    for name in plan.relay.open_topics() {
        report.warning("topic", &format!("{name}: not checked, because its name depends on the record"));
    }
    // Mistakes were told above.
    let routes = plan.relay.routes().unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for topic in routes.topics.iter().flat_map(Route::fixed_targets) {
        if !names.iter().any(|name| name == topic) {
            names.push(topic.to_owned());
        }
    }
    let states = match kafka.config().topics(&names, PATIENCE).await {
        Ok(states) => states,
        // The client does not say why a connection has failed.
        Err(error) => {
            let causes = "look at the address, and at security.protocol, user, password and certificate";
            return report.bad("kafka", &format!("{error}: {causes}"));
        }
    };
    report.good("kafka", "the brokers answer");
    for topic in states {
        let name = &topic.name;
        match topic.partitions {
            Ok(partitions) => {
                let limit = topic
                    .max_message_bytes
                    .map_or_else(|| "may not be read".to_owned(), |limit| format!("is {limit} bytes"));
                report.good("topic", &format!("{name}: {partitions} partitions, max.message.bytes {limit}"));
                let payload = plan.config.schedule.max_payload_bytes;
                if topic.max_message_bytes.is_some_and(|limit| limit <= payload as u64) {
                    report.warning("topic", &format!(
                        "{name}: payloads can have {payload} bytes (schedule.max_payload_bytes), which the topic \
                         refuses: raise max.message.bytes or lower the setting"
                    ));
                }
            }
            Err(error) => {
                report.bad("topic", &format!("{name}: {error}: create it, or give the relay the right to it"))
            }
        }
    }
}

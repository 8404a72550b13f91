//! A broker that is killed while the relay runs.

use sqlx::{Connection, PgConnection};

use super::{
    away::{Away, BROKER},
    broker::{Arrived, content, is_in_order, messages, topic},
    process::Settings,
    stage::settings,
};
use crate::keylane::on_postgres;

const KEYS: usize = 20;
const NUMBERS: usize = 800;
/// A row for each key, each with an event id and a trace that follow from its key and its number.
const SCHEDULE: &str = "
    SELECT outbox_schedule(
        'order.placed', 'key-' || k, to_jsonb(n),
        jsonb_build_object('traceparent', format('00-%s%s-0000000000000001-01', lpad(k::text, 16, '0'), lpad(n::text, 16, '0'))),
        format('00000000-0000-4000-%s-%s', lpad(k::text, 4, '0'), lpad(n::text, 12, '0'))::uuid
    )
    FROM generate_series($1::bigint, $2::bigint) AS n, generate_series(1, $3::bigint) AS k
    ORDER BY n, k";

/// The numbers of this range for each key, in one transaction.
async fn schedule(conn: &mut PgConnection, from: usize, to: usize) {
    let rows = sqlx::query(SCHEDULE).bind(from as i64).bind(to as i64 - 1).bind(KEYS as i64);
    rows.execute(conn).await.unwrap();
}

/// Each message has the event id and the trace that its row was written with, a repeated one too.
fn are_themselves(messages: &[Arrived]) {
    for Arrived { key, body, headers } in messages {
        let key_number = key.strip_prefix("key-").unwrap();
        let event_id = format!("00000000-0000-4000-{key_number:0>4}-{body:0>12}");
        let traceparent = format!("00-{key_number:0>16}{body:0>16}-0000000000000001-01");
        let expected =
            [("ce_id", event_id), ("ce_traceparent", traceparent.clone()), ("traceparent", traceparent)];
        for (name, value) in expected {
            assert_eq!(headers.get(name), Some(&value), "{name} of {key}: {body}");
        }
    }
}

#[tokio::test]
async fn a_broker_that_is_killed_three_times_loses_and_swaps_nothing_of_the_relay() {
    let _alone = BROKER.write().await;
    on_postgres("relay_outage", async |url| {
        let topic = topic().await;
        let text = settings(url, &[("order.placed", &topic)]);
        // A call that gives up says so, which is how the test knows that the outage has been met.
        let text = text.replace("[relay.kafka]", "[relay.kafka]\npatience = '2s'");
        let file = Settings::new("outage", &text);
        file.printed(&["migrate"]).await;
        let mut relay = file.start_with_all_signals().await;
        let mut conn = PgConnection::connect(url).await.unwrap();
        let part = NUMBERS / 8;
        for outage in 0..3 {
            let from = outage * 2 * part;
            schedule(&mut conn, from, from + part).await;
            // In the middle: something has come, and there is more to come, at any rate of the relay.
            messages(&topic, (from + 1) * KEYS).await;
            relay.catch_up();
            let away = Away::kill().await;
            schedule(&mut conn, from + part, from + 2 * part).await;
            relay.says("TargetUnavailable").await;
            away.end().await;
        }
        schedule(&mut conn, 6 * part, NUMBERS).await;
        let arrived = messages(&topic, KEYS * NUMBERS).await;
        is_in_order(&content(&arrived), KEYS, NUMBERS);
        are_themselves(&arrived);
        println!("{} of {} messages repeat an earlier one", arrived.len() - KEYS * NUMBERS, arrived.len());
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0), "it has stayed up all the time");
    })
    .await;
}

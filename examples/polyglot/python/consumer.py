"""What a consumer sees: each key in order, whoever wrote its events."""

import json
import os
import sys

from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient, NewTopic

BROKERS, TOPIC = os.environ["KAFKA_BROKERS"], os.environ["POLYGLOT_TOPIC"]


def make_topic():
    admin = KafkaAdminClient(bootstrap_servers=BROKERS)
    admin.create_topics([NewTopic(name=TOPIC, num_partitions=3, replication_factor=1)])
    admin.close()


def read(expected):
    by_key = {}
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=BROKERS, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    for message in consumer:
        headers = {name: value.decode() for name, value in message.headers}
        event = json.loads(message.value)
        text = f"{headers['ce_type']} {json.dumps(event, sort_keys=True)} of {headers['team']}"
        by_key.setdefault(message.key.decode(), []).append(f"{text}, {headers['trace_id']}")
        if sum(map(len, by_key.values())) == expected:
            break
    consumer.close()
    for key in sorted(by_key):
        print(key)
        for text in by_key[key]:
            print(f"  {text}")


make_topic() if sys.argv[1] == "topic" else read(int(sys.argv[1]))

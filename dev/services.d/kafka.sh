# Apache Kafka, from Maven's registry: one node that is broker and controller, without ZooKeeper.

# 4.4.0 names a part that the registry does not have.
KAFKA_VERSION=4.3.1
# Of all its jars together, so that neither an archive nor one of its dependencies changes unnoticed.
KAFKA_SHA256=9b241538730d32e890117f2362eee3ff6ed60f753d73e6a46652b547a64df32f

kafka_packages() {
  command -v java >/dev/null || echo default-jre-headless
  command -v mvn >/dev/null || echo maven
  command -v openssl >/dev/null || echo openssl
}

kafka_pom() {
  cat <<XML
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>keylane</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$KAFKA_VERSION</version></dependency>
    <!-- Without it the broker logs nothing, and a start that fails is mute. -->
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
XML
}

kafka_install() {
  local D=$S/kafka sum
  [ "$(cat "$D/libs.ok" 2>/dev/null)" != "$KAFKA_VERSION" ] || return 0
  [ -z "$(kafka_packages)" ] || return 1
  say "kafka: fetching $KAFKA_VERSION (about a quarter of a minute, 45 MB)"
  rm -rf "$D/libs" "$D/libs.ok"
  kafka_pom >"$D/pom.xml"
  # A repository of its own, which goes again: nothing is written outside this folder.
  mvn --batch-mode --quiet --strict-checksums --file "$D/pom.xml" -Dmaven.repo.local="$D/maven" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$D/libs" >"$D/install.log" 2>&1 </dev/null ||
    { tail -n 20 "$D/install.log" >&2; return 1; }
  rm -rf "$D/maven"
  sum=$(cd "$D/libs" && LC_ALL=C sha256sum -- *.jar | sha256sum | cut -d' ' -f1)
  if [ "$sum" != "$KAFKA_SHA256" ]; then
    echo "kafka: the jars have the checksum $sum, but $KAFKA_SHA256 is expected" >&2
    return 1
  fi
  echo "$KAFKA_VERSION" >"$D/libs.ok" # only now: an interrupted fetch is not taken for a finished one
}

# kafka_port NAME DISTANCE: a free port, far from those of the other servers. Its number stands in a file.
kafka_port() {
  local port=$(($(<"$S/kafka/port") + $2))
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 10)); done
  echo "$port" >"$S/kafka/$1-port"
}

# The certificate of the listener with TLS.
kafka_certificate() {
  local D=$S/data/kafka
  make_certificate kafka "$D"
  cat "$D/key.pem" "$D/certificate.pem" >"$D/keystore.pem"
}

# Topics are not made by a mere send: a wrong name is an error, as on most clusters. The short session lets
# a killed broker come back in 5 s instead of 13; it waits for the end of its own dead session. The listener with
# TLS and passwords knows two users; one of them has no rights.
kafka_settings() {
  local controller secure
  controller=127.0.0.1:$(<"$S/kafka/controller-port")
  secure=127.0.0.1:$(<"$S/kafka/tls-port")
  cat <<CONF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@$controller
listeners=PLAINTEXT://127.0.0.1:$(<"$S/kafka/port"),CONTROLLER://$controller,SECURE://$secure
advertised.listeners=PLAINTEXT://127.0.0.1:$(<"$S/kafka/port"),SECURE://$secure
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_keylane="keylane" user_stranger="stranger";
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location=$S/data/kafka/keystore.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:keylane
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs=$S/data/kafka/log
auto.create.topics.enable=false
num.partitions=12
# A broker that was killed maps the indexes of every partition again, 10 MB each by default.
log.index.size.max.bytes=65536
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
group.consumer.heartbeat.interval.ms=500
group.consumer.min.heartbeat.interval.ms=500
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
log.cleaner.dedupe.buffer.size=8388608
num.network.threads=2
num.io.threads=4
CONF
}

kafka_init() {
  local D=$S/kafka
  rm -rf "$S/data/kafka/log"
  java -Xmx64m -XX:TieredStopAtLevel=1 -cp "$D/libs/*" kafka.tools.StorageTool format \
    -t AAAAAAAAQACAAAAAAAAAAQ -c "$S/data/kafka/settings" >"$D/init.log" 2>&1 ||
    { tail -n 20 "$D/init.log" >&2; fail "kafka: the format of its folder failed"; }
  touch "$S/data/kafka/formatted" # only now: an interrupted init is not taken for a finished one
}

kafka_start() {
  local D=$S/kafka
  mkdir -p "$S/data/kafka"
  kafka_port controller 10000
  kafka_port tls 5000
  [ -e "$S/data/kafka/keystore.pem" ] || kafka_certificate
  kafka_settings >"$S/data/kafka/settings"
  [ -e "$S/data/kafka/formatted" ] || kafka_init
  # The tests start it often and use it for minutes, so it is compiled quickly and not well.
  launch kafka java -Xms64m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info \
    -cp "$D/libs/*" kafka.Kafka "$S/data/kafka/settings"
}

# The log is its own since this start. The port alone is open before the broker answers.
kafka_ready() { grep -q 'Kafka Server started' "$S/kafka/log"; }

kafka_stop() { stop_process kafka TERM; }

kafka_wipe() { rm -rf "$S/data/kafka"; }

kafka_env() {
  echo "export KEYLANE_TEST_KAFKA='127.0.0.1:$(<"$S/kafka/port")'"
  echo "export KEYLANE_TEST_KAFKA_TLS='127.0.0.1:$(<"$S/kafka/tls-port")'"
  echo "export KEYLANE_TEST_KAFKA_CA='$S/data/kafka/certificate.pem'"
}

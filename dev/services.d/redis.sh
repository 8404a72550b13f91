# Redis, from the distribution. It writes its log of commands, so that the tests may kill it: what was
# acknowledged is lost for one second at most.

redis_packages() { { command -v redis-server && command -v redis-cli; } >/dev/null || echo redis-server; }

redis_install() { [ -z "$(redis_packages)" ]; }

redis_start() {
  local D=$S/data/redis
  mkdir -p "$D"
  # The process is recognised by its command line, which Redis would write anew.
  cat >"$D/settings" <<CONF
bind 127.0.0.1
port $(<"$S/redis/port")
dir $D
save ""
set-proc-title no
appendonly yes
appendfsync everysec
CONF
  launch redis "$(command -v redis-server)" "$D/settings"
}

redis_ready() { [ "$(redis-cli -h 127.0.0.1 -p "$(<"$S/redis/port")" ping 2>/dev/null)" = PONG ]; }

redis_stop() { stop_process redis TERM; }

redis_wipe() { rm -rf "$S/data/redis"; }

redis_env() { echo "export KEYLANE_TEST_REDIS_URL='redis://127.0.0.1:$(<"$S/redis/port")/'"; }

# PostgreSQL (15 or newer), from the distribution.

# Debian keeps the server's programs outside the PATH, one folder for each version.
pg_bin() {
  local initdb
  initdb=$(find /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -V | tail -n 1) || true
  [ -n "$initdb" ] || initdb=$(realpath "$(command -v initdb)" 2>/dev/null) || return 1
  [ -x "$(dirname "$initdb")/postgres" ] && dirname "$initdb"
}

pg_packages() { pg_bin >/dev/null || echo postgresql; }

pg_install() { pg_bin >/dev/null; }

# PostgreSQL refuses to run as root. Asked for at the start, because the package makes the user.
PG_AS=()
pg_user() { id -un postgres 2>/dev/null || echo nobody; }
pg_set_user() {
  [ "$(id -u)" != 0 ] ||
    PG_AS=(setpriv --reuid="$(pg_user)" --regid="$(id -gn "$(pg_user)")" --clear-groups)
}

pg_init() {
  local D=$S/pg
  rm -rf "$S/data/pg" "$S/data/pg.new"
  install -d -m 700 "$S/data/pg.new"
  [ "$(id -u)" != 0 ] || chown "$(pg_user)" "$S/data/pg.new"
  "${PG_AS[@]}" test -x "$D" || fail "pg: the user $(pg_user) cannot enter $D; set KEYLANE_SERVICES"
  "${PG_AS[@]}" "$(pg_bin)/initdb" -D "$S/data/pg.new" -U postgres -A trust -E UTF8 --locale=C --no-sync \
    >"$D/init.log" 2>&1 || { tail -n 20 "$D/init.log" >&2; fail "pg: initdb failed"; }
  # fsync stays on: the tests kill the server and count what is left.
  cat >>"$S/data/pg.new/postgresql.conf" <<'CONF'
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 256MB
max_connections = 300
max_wal_size = 4GB
checkpoint_timeout = 30min
log_lock_waits = on
deadlock_timeout = 200ms
CONF
  mv "$S/data/pg.new" "$S/data/pg" # only now: an interrupted init is not taken for a finished one
}

pg_start() {
  pg_set_user
  [ -d "$S/data/pg" ] || pg_init
  drop_lock_of_zombie "$S/data/pg/postmaster.pid"
  # Not in the settings of the data folder, which may be older: without it PREPARE TRANSACTION is refused.
  launch pg "${PG_AS[@]}" "$(pg_bin)/postgres" -D "$S/data/pg" -p "$(<"$S/pg/port")" \
    -c max_prepared_transactions=20
}

pg_ready() { "$(pg_bin)/pg_isready" -q -U postgres -h 127.0.0.1 -p "$(<"$S/pg/port")"; }

# INT is the fast shutdown; TERM would wait until the last client goes by itself.
pg_stop() { stop_process pg INT; }

pg_wipe() { rm -rf "$S/data/pg" "$S/data/pg.new" "$S/data/pg.copy"; }

pg_copy() {
  pg_set_user
  rm -rf "$S/data/pg.copy"
  install -d -m 700 "$S/data/pg.copy"
  [ "$(id -u)" != 0 ] || chown "$(pg_user)" "$S/data/pg.copy"
  "${PG_AS[@]}" "$(pg_bin)/pg_basebackup" -h 127.0.0.1 -p "$(<"$S/pg/port")" -U postgres -D "$S/data/pg.copy" \
    --checkpoint=fast --no-sync
}

pg_take_copy() {
  [ -d "$S/data/pg.copy" ] || fail "pg: there is no copy"
  rm -rf "$S/data/pg"
  mv "$S/data/pg.copy" "$S/data/pg"
}

pg_env() {
  echo "export KEYLANE_TEST_POSTGRES_URL='postgres://postgres@127.0.0.1:$(<"$S/pg/port")/postgres'"
}

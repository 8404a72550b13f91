# PgBouncer before the PostgreSQL of this folder, from the distribution. It keeps nothing: its data folder
# holds its settings.

pgbouncer_program() { PATH=$PATH:/usr/sbin:/usr/local/sbin command -v pgbouncer; }

pgbouncer_packages() {
  pgbouncer_program >/dev/null || echo pgbouncer
  command -v openssl >/dev/null || echo openssl
}

pgbouncer_install() { pgbouncer_program >/dev/null && command -v openssl >/dev/null; }

# One database for each mode; `single` lends one connection to all, for one transaction each. Startup
# parameters are refused as by its defaults. Clients that ask for TLS get it.
pgbouncer_settings() {
  local mode server
  server="host=127.0.0.1 port=$(<"$S/pg/port") dbname=postgres"
  echo '[databases]'
  for mode in session transaction statement; do echo "$mode = $server pool_mode=$mode"; done
  echo "single = $server pool_mode=transaction pool_size=1"
  cat <<CONF
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $(<"$S/pgbouncer/port")
unix_socket_dir =
auth_type = trust
auth_file = $S/data/pgbouncer/users
client_tls_sslmode = allow
client_tls_key_file = $S/data/pgbouncer/key.pem
client_tls_cert_file = $S/data/pgbouncer/certificate.pem
default_pool_size = 60
max_client_conn = 500
CONF
}

pgbouncer_start() {
  local D=$S/data/pgbouncer
  [ -s "$S/pg/port" ] || fail "pgbouncer: needs pg (dev/services start pg)"
  mkdir -p "$D"
  echo '"postgres" ""' >"$D/users"
  pgbouncer_settings >"$D/settings"
  pg_set_user # it refuses to run as root, as PostgreSQL does
  [ -e "$D/certificate.pem" ] || make_certificate pgbouncer "$D"
  [ "$(id -u)" != 0 ] || chown "$(pg_user)" "$D/key.pem"
  launch pgbouncer "${PG_AS[@]}" "$(pgbouncer_program)" "$D/settings"
}

pgbouncer_ready() { "$(pg_bin)/pg_isready" -q -U postgres -d session -h 127.0.0.1 -p "$(<"$S/pgbouncer/port")"; }

# TERM goes at once; INT would wait for the clients.
pgbouncer_stop() { stop_process pgbouncer TERM; }

pgbouncer_wipe() { rm -rf "$S/data/pgbouncer"; }

pgbouncer_env() {
  local mode
  echo "export KEYLANE_TEST_PGBOUNCER_CA='$S/data/pgbouncer/certificate.pem'"
  for mode in session transaction statement single; do
    echo "export KEYLANE_TEST_PGBOUNCER_${mode^^}_URL='postgres://postgres@127.0.0.1:$(<"$S/pgbouncer/port")/$mode'"
  done
}

# MariaDB, from the distribution. The core packages hold the programs only: no service, no /var/lib/mysql.

# Both programs are often outside the PATH of a user who is not root.
mariadb_program() { PATH=$PATH:/usr/sbin:/usr/local/sbin command -v "$1"; }

mariadb_packages() {
  { mariadb_program mariadbd && mariadb_program mariadb && mariadb_program mariadb-install-db; } >/dev/null ||
    echo mariadb-server-core mariadb-client-core
}

mariadb_install() { [ -z "$(mariadb_packages)" ]; }

# Run by the server at each start, before it takes connections. Users exist by address, because
# names are not resolved. MySQL takes the same statements.
write_init_sql() {
  cat >"$1" <<'SQL'
CREATE USER IF NOT EXISTS keylane@'127.0.0.1' IDENTIFIED BY 'keylane';
GRANT ALL ON *.* TO keylane@'127.0.0.1' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS keylane_test;
SQL
}

mariadb_init() {
  local D=$S/mariadb
  rm -rf "$S/data/mariadb" "$S/data/mariadb.new"
  # --no-defaults comes first everywhere, or the distribution's own settings (socket, user) leak in.
  mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$S/data/mariadb.new" --skip-test-db \
    --auth-root-authentication-method=normal --skip-name-resolve \
    >"$D/init.log" 2>&1 || { tail -n 20 "$D/init.log" >&2; fail "mariadb: mariadb-install-db failed"; }
  mv "$S/data/mariadb.new" "$S/data/mariadb" # only now: an interrupted init is not taken for a finished one
}

mariadb_start() {
  local D=$S/mariadb
  [ -d "$S/data/mariadb" ] || mariadb_init
  mkdir -p "$D/tmp"
  write_init_sql "$D/init.sql"
  launch mariadb "$(mariadb_program mariadbd)" --no-defaults --user="$(id -un)" --datadir="$S/data/mariadb" \
    --tmpdir="$D/tmp" --socket="$D/s.sock" --pid-file="$D/server.pid" --init-file="$D/init.sql" \
    --bind-address=127.0.0.1 --port="$(<"$D/port")" --skip-name-resolve --max-connections=300 \
    --innodb-buffer-pool-size=512M --innodb-log-file-size=256M --performance-schema=OFF \
    --character-set-server=utf8mb4 --collation-server=utf8mb4_bin
}

mariadb_ready() {
  mariadb --no-defaults -S "$S/mariadb/s.sock" -u root -e 'select 1' >/dev/null 2>&1
}

mariadb_stop() { stop_process mariadb TERM; }

mariadb_wipe() { rm -rf "$S/data/mariadb" "$S/data/mariadb.new" "$S/mariadb/tmp"; }

mariadb_env() {
  echo "export KEYLANE_TEST_MARIADB_URL='mysql://keylane:keylane@127.0.0.1:$(<"$S/mariadb/port")/keylane_test'"
}

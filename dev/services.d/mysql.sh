# Genuine MySQL. Debian 12 has none, Debian's unstable branch has: it is unpacked into a folder and run by
# that folder's own loader and libraries, without chroot. Its version moves, and it may be missing
# for a while; then its tests are skipped.

# mysql_unavailable REASON: remembered, so that status and env can tell.
mysql_unavailable() {
  echo "$*" >"$S/mysql/unavailable"
  return 1
}

mysql_program() {
  local R=$S/mysql/root loader libs
  # Where the loader lies and what it is called depends on the processor.
  loader=$(find "$R/lib64/" "$R/lib/" -maxdepth 1 -name 'ld-linux-*.so.*' 2>/dev/null | sed q) || true
  libs=$(find "$R/usr/lib/" -maxdepth 1 -name '*-linux-gnu' | sed q) || true
  MYSQLD=("$loader" --library-path "$libs" "$R/usr/sbin/mysqld" --no-defaults --user="$(id -un)"
    --basedir="$R/usr" --lc-messages-dir="$R/usr/share/mysql" --plugin-dir="$R/usr/lib/mysql/plugin"
    --character-sets-dir="$R/usr/share/mysql/charsets" --secure-file-priv=NULL)
}

mysql_install() {
  local D=$S/mysql log=$S/mysql/install.log source reason
  [ ! -e "$D/root.ok" ] || return 0
  command -v apt-get >/dev/null || { mysql_unavailable "no Debian packages on this system"; return; }
  as_root true 2>/dev/null || { mysql_unavailable "unpacking its packages needs root"; return; }
  if [ ! -x /usr/sbin/debootstrap ]; then
    apt_install debootstrap || { mysql_unavailable "debootstrap cannot be installed"; return; }
  fi
  # The address this machine takes its Debian packages from serves the other branches as well.
  # shellcheck disable=SC2016
  source=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sed q)
  [ -n "$source" ] || { mysql_unavailable "this system has no source of Debian packages"; return; }
  say "mysql: unpacking mysql-server-core (about half a minute, 560 MB)"
  # One file system only: a broken attempt may have left a mount below the folder.
  as_root rm -rf --one-file-system "$D/root"
  if ! as_root /usr/sbin/debootstrap --variant=minbase --include=mysql-server-core sid "$D/root" "$source" \
    >"$log" 2>&1 </dev/null; then
    reason=$(grep '^E: ' "$log" | tail -n 1)
    mysql_unavailable "${reason:-debootstrap failed, see $log}"
    return
  fi
  as_root find "$D/root/var/cache/apt/archives" -name '*.deb' -delete
  mysql_program
  "${MYSQLD[@]}" --version >>"$log" 2>&1 || { mysql_unavailable "its program does not run here, see $log"; return; }
  touch "$D/root.ok"
}

mysql_init() {
  local D=$S/mysql
  rm -rf "$S/data/mysql" "$S/data/mysql.new"
  "${MYSQLD[@]}" --datadir="$S/data/mysql.new" --initialize-insecure >"$D/init.log" 2>&1 ||
    { tail -n 20 "$D/init.log" >&2; fail "mysql: --initialize-insecure failed"; }
  mv "$S/data/mysql.new" "$S/data/mysql" # only now: an interrupted init is not taken for a finished one
}

mysql_start() {
  local D=$S/mysql
  mysql_program
  [ -d "$S/data/mysql" ] || mysql_init
  drop_lock_of_zombie "$D/s.sock.lock"
  write_init_sql "$D/init.sql"
  launch mysql "${MYSQLD[@]}" --datadir="$S/data/mysql" --socket="$D/s.sock" --pid-file="$D/server.pid" \
    --init-file="$D/init.sql" --bind-address=127.0.0.1 --port="$(<"$D/port")" --mysqlx=OFF \
    --skip-log-bin --skip-name-resolve --max-connections=300 --innodb-buffer-pool-size=256M \
    --performance-schema=OFF
}

# The log is its own since this start. Debian 12's clients do not all know MySQL's way to log in.
mysql_ready() { grep -q "ready for connections.* port: $(<"$S/mysql/port")" "$S/mysql/log"; }

mysql_stop() { stop_process mysql TERM; }

mysql_wipe() { rm -rf "$S/data/mysql" "$S/data/mysql.new"; }

mysql_env() {
  if [ -s "$S/mysql/unavailable" ]; then
    echo "export KEYLANE_TEST_MYSQL_SKIP='$(tr -d "'" <"$S/mysql/unavailable")'"
  else
    # As to the other servers without TLS, which would be a third of the client's work. The tests of TLS ask for it.
    echo "export KEYLANE_TEST_MYSQL_URL='mysql://keylane:keylane@127.0.0.1:$(<"$S/mysql/port")/keylane_test?ssl-mode=DISABLED'"
  fi
}

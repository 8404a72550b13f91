# Genuine MySQL. Debian 12 has none, Debian's unstable branch has: its packages are unpacked into a folder and run
# by that folder's own loader and libraries, without chroot. Its version moves, and it may be missing for a while;
# then its tests are skipped.

# mysql_unavailable REASON: remembered, so that status and env can tell.
mysql_unavailable() {
  echo "$*" >"$S/mysql/unavailable"
  return 1
}

mysql_program() {
  local R=$S/mysql/root loader libs
  # Where the loader lies and what it is called depends on the processor.
  loader=$(find "$R"/{usr/,}lib{64,}/ -maxdepth 1 -name 'ld-linux-*.so.*' 2>/dev/null | sed q) || true
  libs=$(find "$R/usr/lib/" -maxdepth 1 -name '*-linux-gnu' | sed q) || true
  MYSQLD=("$loader" --library-path "$libs" "$R/usr/sbin/mysqld" --no-defaults --user="$(id -un)"
    --basedir="$R/usr" --lc-messages-dir="$R/usr/share/mysql" --plugin-dir="$R/usr/lib/mysql/plugin"
    --character-sets-dir="$R/usr/share/mysql/charsets" --secure-file-priv=NULL)
}

# unstable_apt COMMAND...: apt with the unstable branch as its only source, on a system where nothing is installed.
# Its lists and packages lie in a folder of their own, and nothing of this system changes.
unstable_apt() {
  local A=$S/mysql/apt
  apt-get -qq -o Dir::Etc::SourceList="$A/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State="$A/state" \
    -o Dir::State::Status="$A/status" -o Dir::Cache="$A/cache" -o APT::Sandbox::User="$(id -un)" \
    -o APT::Install-Recommends=false "$@"
}

# The address this machine takes its Debian packages from, which serves the other branches as well. Known once apt has
# read its lists.
debian_source() {
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sed q
}

# unpack_unstable PACKAGE FOLDER: with all that it depends on. Scripts of the packages are not run.
unpack_unstable() {
  local A=$S/mysql/apt source keys=/usr/share/keyrings/debian-archive-keyring.gpg package
  source=$(debian_source)
  [ -n "$source" ] || { as_root apt-get -qq -o DPkg::Lock::Timeout=300 update && source=$(debian_source); }
  [ -n "$source" ] || { echo "E: this system has no source of Debian packages"; return 1; }
  # One file system only: a broken attempt of an earlier form of this script may have left a mount there.
  rm -rf --one-file-system "$A" "$2"
  mkdir -p "$A/state/lists/partial" "$A/cache/archives/partial" "$2"
  : >"$A/status" # apt locks a file beside it
  echo "deb [signed-by=$keys] $source sid main" >"$A/sources.list"
  unstable_apt update || return 1
  unstable_apt install --yes --download-only "$1" || return 1
  for package in "$A"/cache/archives/*.deb; do dpkg-deb --extract "$package" "$2" || return 1; done
  rm -rf "$A"
}

mysql_install() {
  local D=$S/mysql log=$S/mysql/install.log reason
  [ ! -e "$D/root.ok" ] || return 0
  command -v apt-get >/dev/null || { mysql_unavailable "no Debian packages on this system"; return; }
  say "mysql: unpacking mysql-server-core"
  if ! unpack_unstable mysql-server-core "$D/root" >"$log" 2>&1 </dev/null; then
    reason=$(grep '^E: ' "$log" | tail -n 1)
    mysql_unavailable "${reason:-its packages cannot be had, see $log}"
    return
  fi
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

# Debian packages: installed once, without letting any of them start a service. Sourced by dev/services.

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -n "$@"
  else
    echo "dev/services: needs root for: $*" >&2
    return 1
  fi
}

# apt_install PACKAGE...: the log is shown only if it fails.
apt_install() { (
  exec 8>"$S/apt.lock"
  flock 8
  policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    # Packages ask this file whether they may start their service; 101 means no.
    trap 'as_root rm -f '$policy EXIT
    trap 'exit 143' INT TERM
    printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
    as_root chmod 755 $policy
  fi
  apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" 8>&-; }
  if ! { apt update && apt install -y --no-install-recommends "$@"; } >"$S/apt.log" 2>&1 </dev/null; then
    tail -n 20 "$S/apt.log" >&2
    exit 1
  fi
); }

# One call for all names: apt's triggers then run once. What is there already is not installed again;
# the programs themselves are the stamp.
install_packages() {
  local missing=() name
  for name; do
    # shellcheck disable=SC2207
    case $name in pg | mariadb | pgbouncer | kafka | redis) missing+=($("${name}_packages")) ;; esac
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || fail "please install by hand what these packages hold: ${missing[*]}"
  say "installing ${missing[*]}"
  apt_install "${missing[@]}" || fail "could not install ${missing[*]}"
}

# Processes: start detached, recognise, signal, wait until gone. Sourced by dev/services.

# A zombie that nobody reaps holds nothing any more; a killed process whose last threads are
# still ending does (its files, its port). So a process exists while one of its threads lives.
exists() { grep -qsE '^State:[[:space:]]+[^ZX]' "/proc/$1"/task/*/status; }

# drop_lock_of_zombie FILE: to a server that starts, the zombie of a killed one looks like the living owner
# of its lock file (the pid in its first line).
drop_lock_of_zombie() {
  local pid
  pid=$(sed q "$1" 2>/dev/null) || return 0
  if [ -n "$pid" ] && [ -e "/proc/$pid" ] && ! exists "$pid"; then rm -f "$1"; fi
}

# running NAME: the pid in the file lives and is this server. The number alone proves nothing: after
# a crash or a reboot it may belong to any other process, so the command line is compared too.
running() {
  local pid line
  pid=$(cat "$S/$1/pid" 2>/dev/null) || return 1
  { [ -n "$pid" ] && exists "$pid"; } || return 1
  line=$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") || return 1
  [[ $line == *"$S/data/$1"[/\ ]* ]]
}

# launch NAME COMMAND...: detached (setsid), so that it outlives the caller's terminal.
launch() {
  local D=$S/$1
  shift
  [ ! -e "$D/log" ] || mv -f "$D/log" "$D/log.1"
  setsid "$@" </dev/null >"$D/log" 2>&1 9>&- &
  echo $! >"$D/pid"
}

await_ready() {
  local pid deadline=$((SECONDS + 240)) # a JVM on a busy machine takes minutes
  pid=$(<"$S/$1/pid")
  while exists "$pid" && [ $SECONDS -lt $deadline ]; do
    if "$1_ready"; then return; fi
    sleep 0.2
  done
  tail -n 20 "$S/$1/log" >&2
  ! exists "$pid" || kill_family "$pid"
  fail "$1: did not start (its log is above)"
}

# PostgreSQL works in child processes: a fault that hits only the first one leaves them at work.
family() { echo "$1" "$(cat "/proc/$1/task/$1/children" 2>/dev/null || true)"; }

signal_family() {
  local pid
  for pid in $(family "$2"); do kill -"$1" "$pid" 2>/dev/null || true; done
}

kill_family() {
  local pids pid
  kill -STOP "$1" 2>/dev/null || true # no new children from here on
  pids=$(family "$1")
  # shellcheck disable=SC2086
  kill -KILL $pids 2>/dev/null || true
  for pid in $pids; do while exists "$pid"; do sleep 0.02; done; done
}

# stop_process NAME SIGNAL: ask, wait half a minute, then kill; returns when it is gone.
stop_process() {
  local pid deadline=$((SECONDS + 30))
  pid=$(<"$S/$1/pid")
  kill -"$2" "$pid"
  signal_family CONT "$pid" # a frozen process hears nothing
  while exists "$pid" && [ $SECONDS -lt $deadline ]; do sleep 0.05; done
  if exists "$pid"; then
    echo "$1: does not end, killed" >&2
    kill_family "$pid"
  fi
}

corral_read() {
  # Of /proc/$1/stat. The name of a program may have any characters in it, so what follows its last bracket counts.
  corral_line=
  while IFS= read -r corral_part; do corral_line="$corral_line$corral_part "; done < "/proc/$1/stat"
  [ -n "$corral_line" ] || return
  corral_pid=${corral_line%% *}
  set -f
  # shellcheck disable=SC2086 # Words.
  set -- ${corral_line##*) }
  set +f
  corral_state=$1 corral_parent=$2 corral_session=$4 corral_start=${20}
}
# Finds what the command $1, which began at $2, has started: all that began since, but for the sessions $3 of other commands, what was there
# before, what came in from outside and so has no parent here, and what descends from these. No session of its own hides a process.
corral_scan() {
  corral_kept=' ' corral_sessions=" 1 $3 " corral_list='' corral_found='' corral_awake=''
  for corral_dir in /proc/[0-9]*; do
    if [ "$corral_dir" = /proc/1 ] || [ ! -O "$corral_dir" ] || ! corral_read "${corral_dir#/proc/}"; then continue; fi
    if [ "$corral_pid $corral_start" != "$1 $2" ] && {
      [ "$corral_parent" = 0 ] || [ "$corral_start" -lt "$2" ] || { [ "$corral_start" = "$2" ] && [ "$corral_pid" -lt "$1" ]; }
    }; then
      corral_keep "$1"
      continue
    fi
    corral_list="$corral_list $corral_pid:$corral_parent:$corral_session:$corral_state"
  done
  corral_more=yes
  while [ -n "$corral_more" ]; do
    corral_more='' corral_rest=''
    for corral_line in $corral_list; do
      corral_pid=${corral_line%%:*} corral_word=${corral_line#*:}
      corral_parent=${corral_word%%:*} corral_word=${corral_word#*:}
      corral_session=${corral_word%%:*}
      corral_other=
      case $corral_kept in *" $corral_parent "*) corral_other=yes ;; esac
      case $corral_sessions in *" $corral_session "*) corral_other=yes ;; esac
      if [ "$corral_pid" != "$1" ] && [ -n "$corral_other" ]; then corral_keep "$1"; corral_more=yes
      else corral_rest="$corral_rest $corral_line"; fi
    done
    corral_list=$corral_rest
  done
  corral_found=
  for corral_line in $corral_list; do
    corral_found="$corral_found ${corral_line%%:*}"
    case $corral_line in *:[TZX]) ;; *) corral_awake="$corral_awake ${corral_line%%:*}" ;; esac
  done
}
corral_keep() {
  corral_kept="$corral_kept$corral_pid "
  [ "$corral_session" = "$1" ] || corral_sessions="$corral_sessions$corral_session "
}
# Signals it. For a KILL it is stopped first: what is stopped cannot fork. If there is much, or if more comes all the same, everything in the cell
# is stopped meanwhile, and continues after that, unless it was stopped before ($5). `corral_left`: some of it may be left, or something else
# has stopped it.
corral_end_all() {
  corral_left=no corral_tries=0 corral_frozen=''
  # shellcheck disable=SC2034 # It is for who calls this.
  if [ -z "$5" ] && corral_read "$2" && [ "$corral_state" = T ]; then corral_left=yes; fi
  corral_freeze_many /proc/[0-9]*
  corral_scan "$2" "$3" "$4"
  # shellcheck disable=SC2086 # Words.
  if [ "$1" != KILL ]; then [ -z "$corral_found" ] || kill -"$1" $corral_found
  else corral_kill_all "$2" "$3" "$4"; fi
  [ -z "$corral_frozen" ] || [ -n "$5" ] || kill -CONT -1
}
corral_freeze_many() {
  [ $# -lt 32 ] || { kill -STOP -1; corral_frozen=yes; }
}
corral_kill_all() {
  while [ -n "$corral_found" ]; do
    corral_tries=$((corral_tries + 1))
    # shellcheck disable=SC2034
    if [ "$corral_tries" -gt 60 ]; then corral_left=yes; break; fi
    if [ "$corral_tries" = 4 ]; then kill -STOP -1; corral_frozen=yes; fi
    # shellcheck disable=SC2086
    if [ -n "$corral_awake" ] && [ -z "$corral_frozen" ]; then kill -STOP $corral_awake; else kill -KILL $corral_found; fi
    if [ "$corral_tries" -gt 8 ]; then command eval '"$corral_gate" usleep 10000'; fi
    jobs -p > /dev/null
    corral_scan "$1" "$2" "$3"
  done
}

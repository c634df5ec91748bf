exec 2> /dev/null 9>&1
umask 022
corral_gate=@GATE_PATH@
corral_descriptors=$(ulimit -S -n)
corral_oom_kills() {
  corral_kills=-
  for corral_file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
    [ -r "$corral_file" ] || continue
    while read -r corral_word corral_value; do [ "$corral_word" = oom_kill ] && corral_kills=$corral_value; done < "$corral_file"
  done
}
corral_find() {
  set -f
  IFS=:
  for corral_dir in $corral_path; do [ -f "$corral_dir/$1" ] && [ -x "$corral_dir/$1" ] && corral_found=$corral_dir/$1 && break; done
  set +f
  unset IFS
}
corral_command() {
  ulimit -S -n "$corral_descriptors"
  corral_name=$1 corral_in=$2 corral_cwd=$3 corral_path=$4
  shift 4
  exec 3< "$corral_in" 4> "@COMMANDS_PATH@/$corral_name.out" 5> "@COMMANDS_PATH@/$corral_name.err"
  corral_read self
  corral_oom_kills
  # shellcheck disable=SC2154 # `corral_read` has set them.
  echo "begun $corral_name $corral_pid $corral_kills $corral_start" >&9
  exec <&3 >&4 2>&5 3<&- 4>&- 5>&- 9>&-
  cd -- "$corral_cwd" 2> /dev/null || {
    if [ -d "$corral_cwd" ]; then echo "$corral_cwd: Permission denied"; elif [ -e "$corral_cwd" ]; then echo "$corral_cwd: Not a directory"; else echo "$corral_cwd: No such file or directory"; fi >&2
    exit 126
  }
  corral_found=$1
  case $1 in
  */*)
    if [ ! -e "$1" ]; then echo "$1: not found" >&2; exit 127; fi
    if [ -d "$1" ] || [ ! -x "$1" ]; then echo "$1: Permission denied" >&2; exit 126; fi
    ;;
  *)
    corral_found=
    corral_find "$1"
    if [ -z "$corral_found" ] && [ "$1" = sh ]; then
      shift
      corral_become "$corral_gate" sh "$@"
    fi
    if [ -z "$corral_found" ]; then echo "$1: command not found" >&2; exit 127; fi
    ;;
  esac
  shift
  corral_become "$corral_found" "$@"
}
corral_run() {
  corral_job=1
  while eval '[ -n "$corral_name_'$corral_job'" ]'; do corral_job=$((corral_job + 1)); done
  ulimit -S -n 5
  command eval 'corral_command "$@" | : | :'
  ulimit -S -n "$corral_descriptors"
  if kill -0 %$corral_job; then
    eval corral_name_$corral_job=$1
    echo "started $1 $corral_job"
  else echo "refused $1"; fi
}
corral_take() {
  eval corral_name='$corral_name_'$1
  [ -n "$corral_name" ] || return
  eval corral_name_$1=
  wait %$1
  corral_code=$?
  corral_oom_kills
  echo "ended $corral_name $corral_code $corral_kills"
}
corral_look() {
  jobs -p > /dev/null
  kill -0 "$2" || corral_take_of "$3" "$1"
}
# The number of the job may be another command's by now, for which this would wait.
corral_take_of() {
  if eval '[ "$corral_name_'$2'" = '$1' ]'; then corral_take "$2"; fi
}
corral_signal() {
  kill -"$1" -1
  corral_left=no
  if [ "$1" = KILL ]; then
    corral_tries=0
    while
      jobs -p > /dev/null
      set -- "$1" "$2" "$3" /proc/[0-9]*
      [ $# -gt 4 ]
    do
      corral_tries=$((corral_tries + 1))
      if [ "$corral_tries" -gt 320 ]; then corral_left=yes; break; fi
      if [ "$corral_tries" -gt 20 ]; then command eval '"$corral_gate" usleep 10000'; fi
      kill -KILL -1
    done
    corral_job=1
    while [ "$corral_left" = no ] && [ "$corral_job" -le "$3" ]; do
      corral_take "$corral_job"
      corral_job=$((corral_job + 1))
    done
  fi
  echo "signalled $2 $corral_left"
}
@END_COMMAND@
corral_end() {
  corral_end_all "$1" "$5" "$6" "$7" "$8"
  if [ "$1" = KILL ] && [ -z "$corral_found" ]; then corral_take_of "$3" "$4"; fi
  echo "signalled $2 $corral_left"
}
corral_count() {
  corral_oom_kills
  echo "counted $1 $corral_kills"
}

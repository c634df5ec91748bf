(
gate=$0
"$gate" head -v -n 100000 /proc/self/mountinfo /proc/self/status /proc/self/limits /proc/net/dev /proc/meminfo /proc/version
echo '== cgroup'
for file in memory/memory.limit_in_bytes memory/memory.memsw.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us memory.max memory.swap.max pids.max cpu.max; do
  [ -r "/sys/fs/cgroup/$file" ] && read -r value < "/sys/fs/cgroup/$file" && echo "$file $value"
done
# A kernel that is not Linux has these elsewhere, if at all.
[ -e /proc/self/limits ] || { echo '== ulimits'; ulimit -Sn; ulimit -Hn; ulimit -Sf; ulimit -Hf; "$gate" setpriv --dump | "$gate" grep no_new_privs; }
echo '== namespaces'
"$gate" stat -L -c '%i %n' /proc/self/ns/pid /proc/self/ns/ipc /proc/self/ns/uts /proc/self/ns/net
echo '== identities'; set -f; IFS='
'; "$gate" stat -c '%d:%i %n' $1
)
echo '== directory'
cd "$2" 2> /dev/null && echo entered
shift 2
corral_gate_command=$(
case $2 in
*/*) [ -f "$2" ] && [ -x "$2" ] && echo "$2" ;;
*) set -f; IFS=:; for dir in $PATH; do [ -f "$dir/$2" ] && [ -x "$dir/$2" ] && echo "$dir/$2" && break; done ;;
esac
)
echo '== command'
echo "$corral_gate_command"
if [ -n "$corral_gate_command" ]; then (
  # shellcheck disable=SC3045 # The gate's own shell knows -n.
  IFS= read -r -n 2 mark 2> /dev/null < "$corral_gate_command" && [ "$mark" = '#!' ] || exit
  # shellcheck disable=SC3045
  IFS= read -r -n 256 line < "$corral_gate_command" || exit
  line=${line#??}
  cr=$(printf '\r')
  # shellcheck disable=SC2086 # Words of the line, as the kernel finds them.
  set -f; unset IFS; set -- $line
  [ -n "$1" ] || exit
  case $1:$line in
  */env:*"$cr") ;;
  *) [ -x "$1" ] && exit ;;
  esac
  echo '== interpreter'
  printf ' %s\n' "$line"
) fi
if [ -n "$1" ]; then (
  for left in @SECRETS_PATH@/* @SECRETS_PATH@/.[!.]* @SECRETS_PATH@/..?*; do
    if [ -e "$left" ] || [ -L "$left" ]; then echo '== secrets'; echo taken; break; fi
  done
) fi
echo '== end'
( IFS= read -r go && [ "$go" = go ] ) || exit @GATE_SHUT@
( @FILL_SECRETS@ ) || exit @GATE_SHUT@
echo '@BEGUN@'
[ -n "$corral_gate_command" ] || exit 127
# Where another program starts the worker's, that one is named by its path.
if [ "$2" = "$3" ]; then shift 3; set -- "$corral_gate_command" "$@"; else shift 2; fi
unset corral_gate_command PWD OLDPWD SHLVL
case $TINI_VERBOSITY in @TELLING@) unset TINI_VERBOSITY ;; esac
trap 'echo "corral: $1 could not be started: its interpreter or its dynamic loader is not in the image" >&2' EXIT
exec "$@"

corral_gate_command='' corral_gate_entered=''
cd "$2" 2> /dev/null && corral_gate_entered=entered
case $4 in
*/*) [ -f "$4" ] && [ -x "$4" ] && corral_gate_command=$4 ;;
*)
  corral_gate_left=${PATH:+${PATH%:}:}
  while [ -n "$corral_gate_left" ] && [ -z "$corral_gate_command" ]; do
    corral_gate_command=${corral_gate_left%%:*}/$4
    [ -f "$corral_gate_command" ] && [ -x "$corral_gate_command" ] || corral_gate_command=
    corral_gate_left=${corral_gate_left#*:}
  done
  ;;
esac
# What it prints comes in one piece: Corral would be woken for each.
corral_gate_report=$(
command=$corral_gate_command entered=$corral_gate_entered
# The shell's own programs have these names. One that it has not is not looked for in the image.
# shellcheck disable=SC2123
PATH=/dev/null
head -v -n 100000 /proc/self/mountinfo /proc/self/status /proc/self/limits /proc/net/dev /proc/meminfo /proc/version
echo '== cgroup'
for file in memory/memory.limit_in_bytes memory/memory.memsw.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us memory.max memory.swap.max pids.max cpu.max; do
  [ -r "/sys/fs/cgroup/$file" ] && read -r value < "/sys/fs/cgroup/$file" && echo "$file $value"
done
# A kernel that is not Linux has these elsewhere, if at all.
[ -e /proc/self/limits ] || { echo '== ulimits'; ulimit -Sn; ulimit -Hn; ulimit -Sf; ulimit -Hf; setpriv --dump | grep no_new_privs; }
echo '== namespaces'
stat -L -c '%i %n' /proc/self/ns/pid /proc/self/ns/ipc /proc/self/ns/uts /proc/self/ns/net
echo '== identities'; set -f; IFS='
'; stat -c '%d:%i %n' $1
unset IFS; set +f
echo '== directory'
echo "$entered"
echo '== command'
echo "$command"
if [ -n "$3" ]; then
  for left in @SECRETS_PATH@/* @SECRETS_PATH@/.[!.]* @SECRETS_PATH@/..?*; do
    if [ -e "$left" ] || [ -L "$left" ]; then echo '== secrets'; echo taken; break; fi
  done
fi
# shellcheck disable=SC3045 # The gate's own shell knows -n.
[ -n "$command" ] && IFS= read -r -n 2 mark 2> /dev/null < "$command" && [ "$mark" = '#!' ] || exit
# shellcheck disable=SC3045
IFS= read -r -n 256 line < "$command" || exit
line=${line#??}
cr=$(printf '\r')
# shellcheck disable=SC2086 # Words of the line, as the kernel finds them.
set -f; set -- $line
[ -n "$1" ] || exit
case $1:$line in
*/env:*"$cr") ;;
*) [ -x "$1" ] && exit ;;
esac
echo '== interpreter'
printf ' %s\n' "$line"
)
printf '%s\n== end\n' "$corral_gate_report"
IFS= read -r corral_gate_left && [ "$corral_gate_left" = go ] || exit @GATE_SHUT@
[ -z "$3" ] || ( shift 2; @FILL_SECRETS@ ) || exit @GATE_SHUT@
echo '@BEGUN@'
[ -n "$corral_gate_command" ] || exit 127
# Where another program starts the worker's, that one is named by its path.
if [ "$4" = "$5" ]; then shift 5; set -- "$corral_gate_command" "$@"; else shift 4; fi
unset corral_gate_command corral_gate_entered corral_gate_left corral_gate_report PWD OLDPWD SHLVL
case $TINI_VERBOSITY in @TELLING@) unset TINI_VERBOSITY ;; esac
trap 'echo "corral: $1 could not be started: its interpreter or its dynamic loader is not in the image" >&2' EXIT
exec "$@"

# The first process of a cell. $0: the gate. $1: how many processes the cell may have. $2: `init` if it stays and takes in what its children leave. Then `sh -c`, the script of the gate and its words.
# The kernel counts processes in the cell's own user namespace from here on.
ulimit -u "$1" || exit 125
# What Corral's own caller has left open is none of the worker's.
for corral_gate_open in /proc/self/fd/*; do
  corral_gate_open=${corral_gate_open##*/}
  [ "$corral_gate_open" -le 2 ] || eval "exec $corral_gate_open>&-"
done
for corral_gate_open in /proc/self/fd/*; do
  [ "${corral_gate_open##*/}" -le 2 ] || [ ! -e "$corral_gate_open" ] || exit 125
done
unset corral_gate_open
if [ "$2" = init ]; then
  # It says nothing itself, as how a signal has ended its child. That is a copy of this shell: to start the gate again would take longer.
  exec 3>&2 2> /dev/null
  (
    exec 2>&3 3>&-
    corral_gate_script=$5
    shift 6
    eval "unset corral_gate_script
$corral_gate_script"
  )
  exit $?
fi
shift 2
exec "$0" "$@"

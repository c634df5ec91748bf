# The first process of a cell. $0: the gate. $1: how many processes the cell may have. $2: `init` if it stays and takes in what its children leave.
# The kernel counts processes in the cell's own user namespace from here on.
ulimit -u "$1" || exit 125
# What Corral's own caller has left open is none of the worker's.
for open in /proc/self/fd/*; do
  open=${open##*/}
  [ "$open" -le 2 ] || eval "exec $open>&-"
done
for open in /proc/self/fd/*; do
  [ "${open##*/}" -le 2 ] || [ ! -e "$open" ] || exit 125
done
unset open
if [ "$2" = init ]; then
  shift 2
  # It says nothing itself, as how a signal has ended its child.
  exec 3>&2 2> /dev/null
  "$0" "$@" 2>&3 3>&-
  exit $?
fi
shift 2
exec "$0" "$@"

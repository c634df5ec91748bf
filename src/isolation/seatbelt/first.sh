# Corral's first process inside of the sandbox. It looks whether the sandbox is there, and becomes the command.
# $1: a file that nothing in the sandbox may read or write; $2: the largest file, in KiB; $3: open files; then the command.
outside=$1 largest=$2 files=$3
shift 3
if ! ulimit -c 0 || ! ulimit -f "$largest" || ! ulimit -n "$files"; then
  printf limits >&3
  exit 126
fi
if (read -r _ <"$outside") 2>/dev/null || (: >>"$outside") 2>/dev/null; then
  printf open >&3
  exit 126
fi
printf ready >&3
exec 3>&-
exec "$@"

# Begins as root of a user namespace of its own, with mounts of its own, and becomes bubblewrap: that has no option for memory in which nothing is executed.
# $0: the gate. $1: an empty directory. $2: files by which it enters the control groups of the cell, a line for each. Then up to `--` a name and its options for each place in memory, and then a command.
set -e
gate=$0
place=$1
IFS='
'
for group in $2; do echo 0 > "$group"; done
unset IFS
shift 2
umask 022
"$gate" mount -t tmpfs -o nosuid,nodev,noexec,size=64k,mode=755 corral "$place"
# One program makes all directories, and one all mounts: to start one takes longer than its work.
names=
table=
while [ "$1" != -- ]; do
  names="$names $1"
  table="${table}corral $1 tmpfs $2 0 0
"
  shift 2
done
(
  cd "$place"
  # shellcheck disable=SC2086 # Corral's own names.
  "$gate" mkdir $names
  "$gate" mount -a -T /dev/stdin << END
$table
END
)
unset names table
shift
exec "$@"

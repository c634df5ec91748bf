# Begins as root of a user namespace of its own, with mounts of its own, and becomes bubblewrap: that has no option for memory in which nothing is executed,
# and reads the list of all mounts for each that it makes. $0: the gate. $1: an empty directory. $2: files by which it enters the control groups of the cell,
# a line for each. $3, $4: directories and files that are made in $1. $5: what is mounted there, as in fstab(5). Then up to `--` files with their content, and then a command.
set -e
gate=$0
place=$1
directories=$3
files=$4
table=$5
IFS='
'
for group in $2; do echo 0 > "$group"; done
unset IFS
shift 5
umask 022
"$gate" mount -t tmpfs -o nosuid,nodev,noexec,size=256k,mode=755 corral "$place"
(
  cd "$place"
  # The directories are made by a program of this shell's own. One makes all mounts: to start it takes longer than its work.
  # shellcheck disable=SC2086 # Corral's own names.
  PATH=/dev/null mkdir -p $directories
  for file in $files; do : > "$file"; done
  while [ "$1" != -- ]; do
    printf %s "$2" > "$1"
    shift 2
  done
  printf '%s\n' "$table" > table
  # It would read the list of all mounts for each, if it found that.
  "$gate" mount -t tmpfs -o ro,size=4k corral /proc
  "$gate" mount -a -T table
  PATH=/dev/null umount /proc
)
unset directories files table
while [ "$1" != -- ]; do shift 2; done
shift
exec "$@"

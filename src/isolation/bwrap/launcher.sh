# Starts cells for as long as Corral has its input open. It is root of a user namespace of its own, and has a root file system in memory. $0: the gate. $1: where the
# directories of cells are. $2: where it is said how they are started. $3: directories, a line for each. Then files with their content.
# shellcheck disable=SC2123 # No program is looked up.
PATH=/dev/null
umask 022
gate=$0 cells=$1 starts=$2
# What may not be read is left out. Each mount would cost every cell more than all copies cost once.
cp -RP /settings/. /etc 2> /dev/null
umount -l /settings || exit
IFS='
'
# shellcheck disable=SC2086 # A word for each line.
[ -z "$3" ] || mkdir -p $3 || exit
unset IFS
shift 3
while [ $# -gt 0 ]; do
  printf %s "$2" > "$1" || exit
  shift 2
done
for shared in /etc /dev; do "$gate" mount -o bind,remount,ro,nosuid,nodev,noexec corral $shared || exit; done
descriptors=$(ulimit -S -n)
start() {
  ulimit -S -n "$descriptors"
  cd "$cells/$1" && exec "$gate" unshare --mount --propagation=private "$gate" sh "$starts/$2.start"
}
exec 2> /dev/null
# A shell starts what is in the background with SIGINT ignored, and waits for the rest: so this fails to make a second pipe when it has started the cell.
# shellcheck disable=SC2034 # They are used by what eval runs.
while IFS=' ' read -r run name; do
  ulimit -S -n 5
  command eval 'start "$run" "$name" | : | :'
  ulimit -S -n "$descriptors"
  jobs -p > /dev/null
done

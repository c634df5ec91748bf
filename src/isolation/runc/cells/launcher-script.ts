/**
 * Mounts an image several times in a mount namespace of its own, and then waits in each place to start runc once: so starting a
 * cell takes few programs but runc, and the mounts end with the last process of the cells. `$0` is the gate's binary, whose
 * programs depend on nothing of this machine. Corral makes the mount points of a cell in its root
 * file system, in memory, before the shell reads the request of its place; then that is made read-only. A device of the image is never opened there.
 *
 * Each place has three descriptors from 3 on, which become the streams of its runc, and ends without one if its input ends. It
 * holds no descriptor of another place. What is in the background ignores SIGINT, and so would a worker (docs/architecture.md, fact: ignored-interrupts).
 *
 * The shell waits for runc, since the kernel reports an exit to the parent: `PLACE CODE`, and in the log of the place the name of the
 * signal, if one ended runc itself.
 */
export const LAUNCHER_SCRIPT = `
umask 022
gate=$0 images=$1 layers=$2 cells=$3 state=$4 runc=$5 memory=$6 places=$7 intact=$8 last=$((3 * $7 + 2))

prepared() {
  cd "$memory" || return
  at=0 made=
  while [ $at -lt $places ]; do
    made="$made $at $at/root $at/upper $at/work"
    at=$((at + 1))
  done
  "$gate" mkdir -m 755 $made || return
  # The kernel takes the names of all layers on one page.
  "$gate" ln -s "$images" l || return
  at=0
  while [ $at -lt $places ]; do
    "$gate" mount -t overlay -o "nodev,volatile,lowerdir=$layers,upperdir=$at/upper,workdir=$at/work" corral $at/root || return
    at=$((at + 1))
  done
}

place() {
  fd=3
  while [ $fd -le $last ]; do
    case $fd in $2 | $3 | $4) ;; *) eval "exec $fd>&-" ;; esac
    fd=$((fd + 1))
  done
  exec <&$2 2>> "$memory/$1/log"
  eval "exec $2>&-"
  IFS=' ' read -r run id root || exit
  (
    bundle=$memory/$1
    set -- $3 $4 $intact "$runc" --root "$state" --log "$bundle/log" --log-format json run --keep --bundle "$bundle" "$id"
    cd "$cells/$run" || exit
    exec >&$1 2>&$2
    eval "exec $1>&- $2>&-"
    shift 2
    if [ "$root" != writable ]; then
      "$gate" mount -o remount,bind,ro,nodev "$bundle/root" && exec "$@"
      exit
    fi
    export gate bundle
    exec "$gate" unshare --mount "$gate" sh -c "$writable" "$gate" "$@"
  )
  echo $1 $?
}

writable='
"$gate" mkdir -m 755 over/upper over/work &&
"$gate" mount -t overlay -o "nodev,volatile,lowerdir=$bundle/root,upperdir=over/upper,workdir=over/work" corral "$bundle/root" &&
unset gate bundle && exec "$@"'

"$gate" mount -t tmpfs -o size=16m,mode=0700 corral "$memory" && (prepared) || exit
echo ready
at=0 fd=3
while [ $at -lt $places ]; do
  place $at $fd $((fd + 1)) $((fd + 2)) &
  eval "exec $fd>&- $((fd + 1))>&- $((fd + 2))>&-"
  at=$((at + 1)) fd=$((fd + 3))
done
wait
`;

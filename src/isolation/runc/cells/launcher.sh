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
    # shellcheck disable=SC2254 # They are numbers.
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
    # shellcheck disable=SC2261 # Two streams, and each goes to one descriptor.
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

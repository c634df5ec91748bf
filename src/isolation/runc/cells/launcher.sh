umask 022
gate=$0 images=$1 layers=$2 cells=$3 state=$4 runtime=$5 options=$6 memory=$7 places=$8 intact=$9 last=$((3 * $8 + 2))

prepared() {
  # crun refuses a mixture of both versions. The controllers of cells are in version 1.
  [ -z "$options" ] || [ ! -d /sys/fs/cgroup/unified ] || "$gate" umount -l /sys/fs/cgroup/unified || return
  cd "$memory" || return
  at=0 made='' pipes='' fd=3
  while [ $at -lt $places ]; do
    made="$made $at $at/root $at/upper $at/work"
    pipes="$pipes p/$fd p/$((fd + 1)) p/$((fd + 2))"
    at=$((at + 1)) fd=$((fd + 3))
  done
  "$gate" mkdir -m 755 $made p || return
  # The kernel takes the names of all layers on one page.
  "$gate" ln -s "$images" l || return
  at=0
  while [ $at -lt $places ]; do
    "$gate" mount -t overlay -o "nodev,volatile,lowerdir=$layers,upperdir=$at/upper,workdir=$at/work" corral $at/root || return
    at=$((at + 1))
  done
  "$gate" mount -t tmpfs -o size=64k,mode=0700 corral p && "$gate" mkfifo -m 600 $pipes
}

place() {
  exec < /proc/self/fd/$2
  fd=3
  while [ $fd -le $last ]; do
    # shellcheck disable=SC2254 # They are numbers.
    case $fd in $3 | $4) ;; *) eval "exec $fd>&-" ;; esac
    fd=$((fd + 1))
  done
  exec 2>> "$memory/$1/log"
  IFS=' ' read -r run id || exit
  (
    bundle=$memory/$1
    set -- $3 $4 $intact "$runtime" $options --root "$state" --log "$bundle/log" --log-format json run --keep --bundle "$bundle" "$id"
    cd "$cells/$run" || exit
    exec > /proc/self/fd/$1 2> /proc/self/fd/$2
    eval "exec $1>&- $2>&-"
    shift 2
    "$gate" mount -o remount,bind,ro,nodev "$bundle/root" && exec "$@"
  )
  echo $1 $?
}

"$gate" mount -t tmpfs -o size=16m,mode=0700 corral "$memory" && (prepared) || exit
fd=3
while [ $fd -le $last ]; do
  eval "exec $fd<> \"\$memory/p/$fd\""
  fd=$((fd + 1))
done
"$gate" umount -l "$memory/p" || exit
echo ready
# The other ends are open.
read -r _ || exit
exec < /dev/null
at=0 fd=3
while [ $at -lt $places ]; do
  place $at $fd $((fd + 1)) $((fd + 2)) &
  eval "exec $fd>&- $((fd + 1))>&- $((fd + 2))>&-"
  at=$((at + 1)) fd=$((fd + 3))
done
wait

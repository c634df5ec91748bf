kill -"$1" -1
[ "$1" = KILL ] || exit 0
attempts=0
while [ "$attempts" -lt 60 ]; do
  attempts=$((attempts + 1))
  left=0
  for process in /proc/[0-9]*; do
    [ -O "$process" ] && [ "$process" != "/proc/$$" ] && left=1
  done
  [ "$left" = 0 ] && exit 0
  "$0" sleep 0.05
  kill -KILL -1
done
exit 1

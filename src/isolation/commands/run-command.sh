# shellcheck disable=SC2046 # It is one number, or nothing.
[ "$1" = quiet ] || ( echo "@BEGUN@"$(@OOM_KILLS_SCRIPT@) )
cd -- "$2" 2> /dev/null || {
  if [ -d "$2" ]; then echo "$2: Permission denied"; elif [ -e "$2" ]; then echo "$2: Not a directory"; else echo "$2: No such file or directory"; fi >&2
  exit 126
}
shift 2
find() (
  IFS=:
  for dir in $PATH; do [ -f "$dir/$1" ] && [ -x "$dir/$1" ] && echo "$dir/$1" && exit; done
)
case $1 in
*/*) ;;
*)
  set -- "$(find "$1")" "$@"
  [ -n "$1" ] || [ "$2" != sh ] || { shift 2; exec "$0" sh "$@"; }
  [ -n "$1" ] || { echo "$2: command not found" >&2; exit 127; }
  corral_found=$1; shift 2; set -- "$corral_found" "$@"; unset corral_found
  ;;
esac
exec "$@"

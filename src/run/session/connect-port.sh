# `$0` is the gate's binary, `$1` a port, `$2` the same in hexadecimal.
corral_listens() { "$0" grep -qE "^ *[0-9]+: ($2):$3 [0-9A-F]+:0000 0A " "/proc/net/$1" 2> /dev/null; }
if corral_listens tcp '0100007F|00000000' "$2" || corral_listens tcp6 0000000000000000FFFF00000100007F "$2"; then
  corral_host=127.0.0.1
elif corral_listens tcp6 '0{32}|0{24}01000000' "$2"; then
  corral_host=::1
  # Without a loopback address of version 6, a socket that listens on all addresses has those of version 4 alone.
  "$0" grep -q '^0*1 ' /proc/net/if_inet6 2> /dev/null || corral_host=127.0.0.1
else
  exit 7
fi
echo $$ >&2
exec "$0" nc "$corral_host" "$1"

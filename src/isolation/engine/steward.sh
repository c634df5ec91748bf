worker=$1 own=$2 place=$3
shift 3
cd "$place" || exit 1
holds() {
  set -- "$1"/* "$1"/.[!.]* "$1"/..?*
  for one; do if [ -e "$one" ] || [ -L "$one" ]; then return 0; fi; done
  return 1
}
emptied() { ! holds "$1" || find "$1" -mindepth 1 -maxdepth 1 -exec rm -rf -- {} + ; }
moved() { find "$1" -mindepth 1 -maxdepth 1 -exec mv -t "$2" {} + ; }
given() { find "$1" -mindepth 1 ! '(' -type d -user 0 ')' -prune -o -exec chown "$own" {} + ; }
begin() { for dir in io attachments "$@"; do chown 0:0 "$dir" && chmod 755 "$dir" || return 1; done; }
lay() {
  [ "$worker" = "$own" ] || chown "$worker" staged/io/out staged/io/err || return 1
  chown 0:0 staged/io/in staged/io/env && mv -t io staged/io/in staged/io/env staged/io/out staged/io/err || return 1
  if holds staged/attachments; then
    chown -R 0:0 staged/attachments && moved staged/attachments attachments && chown "$own" staged/attachments || return 1
  fi
  for dir; do
    holds "staged/$dir" || continue
    find "staged/$dir" -mindepth 1 -type d -perm 0750 -exec chown 0:0 {} + -exec chmod 755 {} + && moved "staged/$dir" "$dir" || return 1
  done
}
take() {
  rm -f io/in io/env io/out io/err && emptied attachments || return 1
  for dir; do
    holds "$dir" || continue
    given "$dir" && moved "$dir" "staged/$dir" || return 1
  done
}
end() { for dir in io attachments "$@"; do given "$dir"; given "staged/$dir"; chown "$own" "$dir" "staged/$dir"; done; }
echo ready
while IFS= read -r act; do
  case $act in begin | lay | take) ;; *) break ;; esac
  if "$act" "$@"; then echo "done"; else echo failed; fi
done
end "$@"

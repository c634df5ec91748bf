# bash completion of corral
_corral() {
  local line kind=''
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ -z $kind ]]; then kind=$line; else COMPREPLY+=("${line%%$'\t'*}"); fi
  done < <(command corral complete bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case $kind in
    files) compopt -o default 2>/dev/null ;;
    folders) compopt -o dirnames 2>/dev/null ;;
  esac
}
complete -F _corral corral

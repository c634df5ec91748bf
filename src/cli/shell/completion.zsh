#compdef corral
_corral() {
  local -a lines found shown
  local line kind
  lines=("${(@f)$(command corral complete zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  kind=$lines[1]
  shift lines
  if [[ $kind == (files|folders) ]]; then
    [[ $words[CURRENT] == --*=* ]] && compset -P '*='
    if [[ $kind == folders ]]; then _files -/; else _files; fi
    return
  fi
  for line in $lines; do
    found+=("${line%%$'\t'*}")
    shown+=("${line//$'\t'/  }")
  done
  (( $#found )) && compadd -l -d shown -a -- found
}
if [[ $funcstack[1] == _corral ]]; then _corral "$@"; else compdef _corral corral; fi

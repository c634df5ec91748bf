import type { Terminal } from "../terminal/terminal.ts";
import type { CompletedShell } from "./complete.ts";

/** `corral completion`: the script for one shell. */
export async function completionVerb(shell: CompletedShell, { stdout }: Pick<Terminal, "stdout">): Promise<number> {
  stdout.write(SCRIPTS[shell]);
  return 0;
}

/*
 * Each script asks `corral complete SHELL -- WORDS`, with the word at the cursor as the last. The first line of the answer says
 * `words`, `files` or `folders`; each further line is a word, a tab and what it means. No script evaluates what it reads.
 */

const BASH = String.raw`# bash completion of corral
_corral() {
  local line kind=''
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ -z $kind ]]; then kind=$line; else COMPREPLY+=("${"$"}{line%%$'\t'*}"); fi
  done < <(command corral complete bash -- "${"$"}{COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case $kind in
    files) compopt -o default 2>/dev/null ;;
    folders) compopt -o dirnames 2>/dev/null ;;
  esac
}
complete -F _corral corral
`;

const ZSH = String.raw`#compdef corral
_corral() {
  local -a lines found shown
  local line kind
  lines=("${"$"}{(@f)$(command corral complete zsh -- "${"$"}{(@)words[2,CURRENT]}" 2>/dev/null)}")
  kind=$lines[1]
  shift lines
  if [[ $kind == (files|folders) ]]; then
    [[ $words[CURRENT] == --*=* ]] && compset -P '*='
    if [[ $kind == folders ]]; then _files -/; else _files; fi
    return
  fi
  for line in $lines; do
    found+=("${"$"}{line%%$'\t'*}")
    shown+=("${"$"}{line//$'\t'/  }")
  done
  (( $#found )) && compadd -l -d shown -a -- found
}
if [[ $funcstack[1] == _corral ]]; then _corral "$@"; else compdef _corral corral; fi
`;

const FISH = String.raw`# fish completion of corral
function __corral_complete
    set -l before (commandline -opc)
    set -e before[1]
    set -l current (commandline -ct)
    set -l lines (command corral complete fish -- $before "$current" 2>/dev/null)
    set -l kind $lines[1]
    set -e lines[1]
    switch "$kind"
        case files
            __fish_complete_path "$current"
        case folders
            __fish_complete_directories "$current" ''
        case '*'
            for line in $lines
                printf '%s\n' $line
            end
    end
end
complete -c corral -f -a '(__corral_complete)'
`;

const SCRIPTS: Readonly<Record<CompletedShell, string>> = { bash: BASH, zsh: ZSH, fish: FISH };

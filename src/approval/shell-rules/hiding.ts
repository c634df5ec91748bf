import type { ShellWord } from "./pattern.ts";

/**
 * True for a command that runs other commands from its arguments, its input or a file: the analysis cannot see those.
 *
 * Languages (`python`, `awk`) and programs with hooks (`git -c`, `tar --to-command`) are not included: a rule that allows
 * them with any arguments allows them to run anything.
 */
export function hidesCommand(words: readonly ShellWord[]): boolean {
  const [word] = words;
  if (typeof word !== "string") return true;
  const name = word.slice(word.lastIndexOf("/") + 1);
  if (HIDING.has(name)) return true;
  if (name === "find") return words.some((argument) => argument === null || /^-(exec|ok)(dir)?$/.test(argument));
  return EVALUATING.has(name) && words.some((argument) => argument !== null && /\[.*(\$\(|`)/s.test(argument));
}

const HIDING = new Set(
  [
    // Builtins that run text as code, or that change the meaning of later words.
    "eval . source exec command builtin trap alias bind enable hash fc complete compgen coproc function",
    // Builtins with arithmetic, which runs a subscript `a[$(…)]` in a variable's value.
    "let declare typeset local",
    "sh bash dash ash rbash zsh ksh mksh fish csh tcsh busybox toybox",
    "sudo doas su runuser pkexec setpriv capsh chroot unshare nsenter bwrap firejail proot fakeroot",
    "env xargs parallel nohup nice ionice chrt taskset timeout stdbuf setsid setarch time watch flock script expect",
    "strace ltrace prlimit choom entr systemd-run start-stop-daemon run-parts ssh",
  ].flatMap((line) => line.split(" ")),
);

/** Given a variable name with a subscript, bash runs the `$(…)` in it, even if it is quoted. */
const EVALUATING = new Set(["test", "[", "printf", "read", "mapfile", "readarray", "getopts", "unset", "wait"]);

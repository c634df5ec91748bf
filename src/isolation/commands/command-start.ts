import { GATE_PATH } from "../plan/plan.ts";

/**
 * Prints how many processes of the cell the kernel has killed for memory so far, in either version of control groups;
 * nothing if the cell does not know.
 */
export const OOM_KILLS_SCRIPT = `
for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
  [ -r "$file" ] || continue
  while read -r name value; do [ "$name" = oom_kill ] && echo "$value"; done < "$file"
done
exit 0
`;

/** Null if the text is not a count. */
export function parseOomKills(text: string): number | null {
  const count = Number.parseInt(text, 10);
  return Number.isSafeInteger(count) ? count : null;
}

/** Begins the line that says that a command has started. Another first line is the Engine's reason why it did not. */
const BEGUN = "corral-begun ";

/**
 * Looks up the program itself, as the gate does: for a missing program the Engine would print its own message into the
 * command's output, with an exit code of its own. The same holds for the directory. An image without a shell uses the
 * gate's. None of the script's variables reach the command's environment. `$0` is the gate's binary.
 *
 * Except at a terminal, whose echo would come between, it first prints a line: that it has started, and how many
 * processes were killed for memory before that.
 */
const RUN_SCRIPT = `
[ "$1" = quiet ] || ( echo "${BEGUN}"$(${OOM_KILLS_SCRIPT}) )
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
`;

/** The argument list of a command, which the script above starts. `told`: it begins with that line. */
export function commandArguments({ cwd, argv }: { cwd: string; argv: readonly string[] }, told: boolean): string[] {
  return [GATE_PATH, "sh", "-c", RUN_SCRIPT, GATE_PATH, told ? "told" : "quiet", cwd, ...argv];
}

/** A first line is short: `BEGUN` and a count, or an error of the Engine. */
const MAX_FIRST_LINE_BYTES = 1024;

/** Removes the first line from a stream and passes the rest on. */
export class FirstLine {
  #begun = Buffer.alloc(0);
  /** Null if the stream has no complete line yet. */
  line: string | null = null;

  /** True if the line says that the command has started. */
  get hasBegun(): boolean {
    return this.line?.startsWith(BEGUN) === true;
  }

  /** How many processes were killed for memory before that; null if it is not known. */
  get oomKillsBefore(): number | null {
    return this.hasBegun ? parseOomKills((this.line ?? "").slice(BEGUN.length)) : null;
  }

  /** What follows the line in this piece of the stream. */
  add(chunk: Buffer): Buffer {
    if (this.line !== null) return chunk;
    this.#begun = Buffer.concat([this.#begun, chunk.subarray(0, MAX_FIRST_LINE_BYTES)]);
    const end = this.#begun.indexOf("\n");
    if (end < 0) return Buffer.alloc(0);
    this.line = this.#begun.toString("latin1", 0, end);
    const taken = end + 1 - (this.#begun.length - Math.min(chunk.length, MAX_FIRST_LINE_BYTES));
    return chunk.subarray(taken);
  }
}

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

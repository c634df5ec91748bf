import type { Colors } from "../../operations/wording/quoted-lines.ts";

/** The colour of one line of a unified diff. */
export function paintOf(line: string, colors: Colors): (text: string) => string {
  if (line.startsWith("+++ ") || line.startsWith("--- ")) return colors.bold;
  if (line.startsWith("+")) return colors.green;
  if (line.startsWith("-")) return colors.red;
  if (line.startsWith("conflict: ") || line.startsWith("refused: ")) return colors.yellow;
  return line.startsWith("@@") ? colors.cyan : (text) => text;
}

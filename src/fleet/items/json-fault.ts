/**
 * The column of what a JSON parser found wrong, from 1. It tells the place of some faults in its message; an unexpected
 * token it only names.
 */
export function faultColumn(text: string, message: string): number {
  const told = / at position (\d+)/.exec(message)?.[1];
  if (told !== undefined) return Number(told) + 1;
  if (!message.startsWith("Unexpected token")) return text.length + 1;
  // Every beginning that holds the token has the same fault, and no shorter one has it.
  let [sound, faulty] = [0, text.length];
  while (faulty - sound > 1) {
    const middle = (sound + faulty) >> 1;
    if (hasUnexpectedToken(text.slice(0, middle))) faulty = middle;
    else sound = middle;
  }
  return sound + 1;
}

function hasUnexpectedToken(text: string): boolean {
  try {
    JSON.parse(text);
    return false;
  } catch (error) {
    return (error as Error).message.startsWith("Unexpected token");
  }
}

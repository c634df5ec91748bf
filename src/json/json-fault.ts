/** Where a text stops being JSON, as an offset from 0. The parser's message contains it for some faults; of an unexpected token it contains only the text. */
export function jsonFaultOffset(text: string, message: string): number {
  const told = / at position (\d+)/.exec(message)?.[1];
  if (told !== undefined) return Number(told);
  if (!message.startsWith("Unexpected token")) return text.length;
  // Every beginning that holds the token has the same fault, and no shorter one has it.
  let [sound, faulty] = [0, text.length];
  while (faulty - sound > 1) {
    const middle = (sound + faulty) >> 1;
    if (hasUnexpectedToken(text.slice(0, middle))) faulty = middle;
    else sound = middle;
  }
  return sound;
}

function hasUnexpectedToken(text: string): boolean {
  try {
    JSON.parse(text);
    return false;
  } catch (error) {
    return (error as Error).message.startsWith("Unexpected token");
  }
}

/** One word as a POSIX shell reads it, in quotes only if it needs them: for commands that messages print. */
export function shellWord(text: string): string {
  return /^[\w@%+:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

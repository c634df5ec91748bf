/** The code of an error of the operating system or of Node, such as `ENOENT`; undefined if it has none. */
export function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === "string" ? code : undefined;
}

/** True if the error has one of these codes. */
export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return codes.includes(codeOf(error) ?? "");
}

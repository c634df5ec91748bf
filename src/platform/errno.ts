/** The code of an error of the operating system or of Node, such as `ENOENT`; undefined if it has none. */
export function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === "string" ? code : undefined;
}

/** True if the error has one of these codes. */
export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return codes.includes(codeOf(error) ?? "");
}

/** For `catch`: null for an error that has one of these codes; another error is thrown again. */
export function nullFor(...codes: readonly string[]): (error: unknown) => null {
  return (error) => {
    if (hasCode(error, ...codes)) return null;
    throw error;
  };
}

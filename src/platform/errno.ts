/** Errors of the host, which say nothing about the run: no descriptor, no memory, no space, or a disk that fails. */
const OF_THE_HOST = ["EDQUOT", "EIO", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "EROFS"] as const;

export function isHostTrouble(error: unknown): error is NodeJS.ErrnoException {
  return hasCode(error, ...OF_THE_HOST);
}

const MAX_CHARACTERS = 500;

/** An unexpected error in one line for the user, with the place in Corral that threw it. Never for a worker: it may name host paths. */
export function bugText(error: unknown): string {
  if (!(error instanceof Error)) return String(error).slice(0, MAX_CHARACTERS);
  const place = /\n\s+at (.*)/.exec(error.stack ?? "")?.[1];
  const text = `${error.name}: ${error.message}`.replaceAll(/\s+/g, " ").slice(0, MAX_CHARACTERS);
  return place === undefined ? text : `${text} (at ${place.slice(0, MAX_CHARACTERS)})`;
}

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

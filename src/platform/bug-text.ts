const MAX_CHARACTERS = 500;

/** An unexpected error in one line for the user, with the place in Corral that threw it. Never for a worker: it may name host paths. */
export function bugText(error: unknown): string {
  if (!(error instanceof Error)) return String(error).slice(0, MAX_CHARACTERS);
  const place = /\n\s+at (.*)/.exec(error.stack ?? "")?.[1];
  const text = `${error.name}: ${error.message}`.replaceAll(/\s+/g, " ").slice(0, MAX_CHARACTERS);
  return place === undefined ? text : `${text} (at ${place.slice(0, MAX_CHARACTERS)})`;
}

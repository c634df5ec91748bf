/** Milliseconds since 1970. @throws RangeError if it is not a time */
export function msOf(iso: string): number {
  const ms = Date.parse(iso);
  if (Number.isNaN(ms)) throw new RangeError(`${iso} is not a time`);
  return ms;
}

/** A run's id, and the number of the commit where it made several. Only such a text is ever part of a path. */
export function isChangesetId(text: string): boolean {
  return /^[0-9a-f]{12}(\.[0-9]{1,6})?$/.test(text);
}

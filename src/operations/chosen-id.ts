import { printableLine } from "../text/visible.ts";
import { RequestError } from "./request-error.ts";

/** One thing that a user can name by its id. */
export interface Nameable {
  readonly id: string;
  /** What sets it apart from others in the error of an ambiguous prefix, such as its worker and its time. */
  readonly about: string;
}

/** The newest thing of its kind, in place of an id. */
export const LATEST = "latest";

const MAX_CANDIDATES = 10;
/** So many that begin with a prefix are enough for {@link chosenId}; a source may leave out the others. */
export const ENOUGH_CANDIDATES = MAX_CANDIDATES + 1;

/**
 * The id that a user means: a whole one, a prefix that only one has, or `latest`. `known`: the newest first; those that do not
 * begin with what was asked for may be left out. `unknown`: the error if there is none.
 *
 * @throws RequestError AMBIGUOUS_ID, which lists the candidates
 */
export function chosenId(asked: string, known: readonly Nameable[], unknown: () => RequestError): string {
  if (asked === LATEST && known[0] !== undefined) return known[0].id;
  // An unset variable of a script is not the one thing that there is.
  const fitting = asked === "" ? [] : known.filter(({ id }) => id.startsWith(asked));
  const exact = fitting.find(({ id }) => id === asked);
  const [first] = fitting;
  if (first === undefined) throw unknown();
  if (exact !== undefined || fitting.length === 1) return (exact ?? first).id;
  const shown = fitting.slice(0, MAX_CANDIDATES).map(({ id, about }) => `  ${id}  ${printableLine(about, 80)}`);
  const more = fitting.length > MAX_CANDIDATES ? ["  and more"] : [];
  const message = [`${printableLine(asked, 80)} is the beginning of more than one id:`, ...shown, ...more].join("\n");
  throw new RequestError("AMBIGUOUS_ID", asked, message);
}

/** For people: that there is no run of this id, or none at all where the latest was asked for. `kind`: in the singular. */
export function noneText(kind: string, asked: string): string {
  if (asked === LATEST) return `there are no ${kind}s`;
  return `there is no ${kind} ${asked === "" ? '""' : printableLine(asked, 80)}`;
}

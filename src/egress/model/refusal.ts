import type { NetworkRefusal } from "../../sandbox/network/report.ts";

/** Why a connection or a request does not leave the cell. `detail` is one line for the user and for the worker. */
export interface Refusal {
  /** `host:port`. */
  readonly to: string;
  readonly reason: NetworkRefusal;
  readonly detail: string;
}

/** A text that a cell chose, for a report: one line, printable, short. */
export function shown(text: string): string {
  const clean = text.replaceAll(/[^\x21-\x7e]/g, "?");
  return clean.length > 300 ? `${clean.slice(0, 300)}…` : clean;
}

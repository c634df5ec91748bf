import type { Mount } from "./mount.ts";

/** Where a mount's writes go: to a side that comes back as a changeset, or to one that never does. */
export interface Sides {
  readonly stage?: true | undefined;
  readonly discard?: true | undefined;
}

/** What any of them says, for a side is never taken back. To be spread over a mount that may have one already. */
export function sidesOf(...said: readonly (Sides | undefined)[]): Pick<Mount, "stage" | "discard"> {
  return {
    ...(said.some((each) => each?.stage) ? { stage: true as const } : {}),
    ...(said.some((each) => each?.discard) ? { discard: true as const } : {}),
  };
}

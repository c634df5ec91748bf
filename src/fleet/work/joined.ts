import type { Membership, NewMachine, WorkStore } from "../model/work.ts";

export interface Joining {
  /** Ends the wait. */
  readonly over: AbortSignal;
  /** Between two attempts. It never rejects. */
  readonly pause: () => Promise<void>;
  /** Told once; then it tries until the queue answers. Null: rejects if the queue does not answer. */
  readonly onTrouble: ((detail: string) => void) | null;
}

/** Joins the queue as a machine. Null: it was ended meanwhile. */
export async function joined(
  work: Pick<WorkStore, "join">,
  machine: NewMachine,
  { over, pause, onTrouble }: Joining,
): Promise<Membership | null> {
  for (let isTroubled = false; !over.aborted; ) {
    const ended = Promise.withResolvers<null>();
    const end = (): void => ended.resolve(null);
    over.addEventListener("abort", end, { once: true });
    const joining = work.join(machine);
    try {
      const membership = await Promise.race([joining, ended.promise]);
      if (membership === null) void joining.then((late) => late[Symbol.asyncDispose]()).catch(() => {});
      return membership;
    } catch (error) {
      if (onTrouble === null) throw error;
      if (!isTroubled) onTrouble((error as Error).message);
      isTroubled = true;
      await pause();
    } finally {
      over.removeEventListener("abort", end);
    }
  }
  return null;
}

/** The first pause between two attempts. Each is twice as long as the one before, up to the longest. */
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15_000;
/** The most different reasons that one wait reports. */
const MAX_TOLD = 10;

export interface Patience {
  /** Ends the wait. */
  readonly over: AbortSignal;
  /** Whether the same may succeed later. What is not, such as a wrong password, is thrown. */
  readonly isPassing: (error: unknown) => boolean;
  /** Called with each reason to wait, once. */
  readonly onAway: (why: string) => void;
  /** It never rejects, and is over at once if `over` is aborted. */
  readonly pause: (ms: number) => Promise<unknown>;
}

/** Tries to open something until it is there, with growing pauses. Null: the wait was ended; what opens afterwards is closed. */
export async function whenThere<T extends AsyncDisposable>(
  open: () => Promise<T>,
  { over, isPassing, onAway, pause }: Patience,
): Promise<T | null> {
  const told = new Set<string>();
  for (let pauseMs = FIRST_PAUSE_MS; !over.aborted; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    const ended = Promise.withResolvers<null>();
    const end = (): void => ended.resolve(null);
    over.addEventListener("abort", end, { once: true });
    const opening = open();
    try {
      const opened = await Promise.race([opening, ended.promise]);
      if (opened === null) void opening.then((late) => late[Symbol.asyncDispose]()).catch(() => {});
      return opened;
    } catch (error) {
      if (!isPassing(error)) throw error;
      const { message } = error as Error;
      if (!told.has(message) && told.size < MAX_TOLD) onAway(message);
      if (told.size < MAX_TOLD) told.add(message);
      await pause(pauseMs);
    } finally {
      over.removeEventListener("abort", end);
    }
  }
  return null;
}

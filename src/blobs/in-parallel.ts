/** Blobs that are stored or fetched at the same time: most of the time is spent waiting for a disk or a network. */
const AT_ONCE = 8;

/** Rejects with the first failure, when all that had begun has ended. */
export async function inParallel<T>(all: readonly T[], each: (one: T) => Promise<void>): Promise<void> {
  const left = all.values();
  let failed = false;
  const work = async (): Promise<void> => {
    for (const one of left) {
      if (failed) return;
      await each(one).catch((error: unknown) => {
        failed = true;
        throw error;
      });
    }
  };
  const done = await Promise.allSettled(Array.from({ length: AT_ONCE }, work));
  for (const one of done) if (one.status === "rejected") throw one.reason;
}

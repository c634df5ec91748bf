import { type FileHandle, open, stat } from "node:fs/promises";

/** A network namespace that is held open. The kernel gives its number to no other one meanwhile. */
export interface NetworkNamespace extends AsyncDisposable {
  readonly descriptor: number;
}

/** That of a process; null if it is this process's own. Rejects if there is no such process. */
export async function openNetworkNamespace(pid: number): Promise<NetworkNamespace | null> {
  const held: FileHandle = await open(`/proc/${pid}/ns/net`, "r");
  try {
    const [{ ino }, own] = await Promise.all([
      held.stat({ bigint: true }),
      stat("/proc/self/ns/net", { bigint: true }),
    ]);
    if (ino !== own.ino) return { descriptor: held.fd, [Symbol.asyncDispose]: () => held[Symbol.asyncDispose]() };
    await held.close();
    return null;
  } catch (error) {
    await held.close();
    throw error;
  }
}

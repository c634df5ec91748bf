import { type FileHandle, open, stat } from "node:fs/promises";

/**
 * The network namespace of a process, held open; null if it is not the one with the number `reported` by a cell's gate.
 * The kernel gives a number to no other namespace while a descriptor is open, so what was compared is what is entered.
 */
export async function openNetworkNamespace(pid: number, reported: string): Promise<FileHandle | null> {
  const namespace = await open(`/proc/${pid}/ns/net`, "r");
  try {
    const [{ ino }, own] = await Promise.all([
      namespace.stat({ bigint: true }),
      stat("/proc/self/ns/net", { bigint: true }),
    ]);
    if (String(ino) === reported && ino !== own.ino) return namespace;
    await namespace.close();
    return null;
  } catch (error) {
    await namespace.close();
    throw error;
  }
}

/** The name of a worker as a tool. Providers take letters, digits, `_` and `-` alone. */
export function toolNameOf(worker: string): string {
  return worker.replaceAll(".", "_");
}

/** What `--failed` means, everywhere: it ran or was to run, and did not succeed. One that was cancelled was not let. */
export function isFailure(status: string): boolean {
  return !["succeeded", "cached", "cancelled"].includes(status);
}

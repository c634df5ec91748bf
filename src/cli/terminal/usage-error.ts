/** The command line cannot be understood, or names what is not there. Nothing has been run; the exit status is 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

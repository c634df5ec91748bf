/** The database that has the fleets cannot be used. The message says why and what to do, and has no password. */
export class QueueError extends Error {
  override readonly name = "QueueError";
  /** It does not answer now, and may later. */
  readonly isPassing: boolean;

  constructor(
    message: string,
    { isPassing = false, ...options }: ErrorOptions & { readonly isPassing?: boolean } = {},
  ) {
    super(message, options);
    this.isPassing = isPassing;
  }
}

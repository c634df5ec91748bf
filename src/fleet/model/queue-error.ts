/** The database that has the fleets cannot be used. The message says why and what to do, and has no password. */
export class QueueError extends Error {
  override readonly name = "QueueError";
}

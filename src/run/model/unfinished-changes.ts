/** Changes that were begun cannot be finished now: they stay as they are, with their fleet, until they can. The message says why. */
export class UnfinishedChanges extends Error {
  override readonly name = "UnfinishedChanges";
}

/** A refused operation on a repository. The message is for workers: it holds virtual paths only, and no address. */
export class GitRefusal extends Error {
  override readonly name = "GitRefusal";
  readonly code: string;
  /** Git's own output, for people. It may hold host paths, but no secret. */
  readonly detail: string | null;

  constructor(code: string, message: string, detail: string | null = null) {
    super(message);
    this.code = code;
    this.detail = detail;
  }
}

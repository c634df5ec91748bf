/** What a repository's operation is refused with. The text is for a worker: virtual paths only, and no address. */
export class GitRefusal extends Error {
  override readonly name = "GitRefusal";
  readonly code: string;
  /** What git itself said, for people: host paths may be in it, and no secret is. */
  readonly detail: string | null;

  constructor(code: string, message: string, detail: string | null = null) {
    super(message);
    this.code = code;
    this.detail = detail;
  }
}

/** What was read for an image, or why it cannot be used. */
export type Read<Value> =
  | { readonly ok: true; readonly value: Value }
  /** `fault` names files by their path in the folder. */
  | { readonly ok: false; readonly fault: string };

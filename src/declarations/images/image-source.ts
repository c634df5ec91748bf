/** From what Corral makes the image of a worker. */
export type ImageSource =
  /** A folder of the project with a Dockerfile; relative to the project, as `images/ocr`. */
  | { readonly kind: "build"; readonly folder: string }
  /** An image of a registry, by the digest of its contents; `reference` is for people: `python:3.13-slim`. */
  | { readonly kind: "pull"; readonly reference: string; readonly digest: string };

/** What of an image of a registry the Engine is asked for: its repository, and the digest in place of the tag. */
export function pulledName({ reference, digest }: Extract<ImageSource, { kind: "pull" }>): string {
  return `${repositoryOf(reference)}@${digest}`;
}

/** `registry.example:5000/team/tool` of `registry.example:5000/team/tool:1.2`. */
export function repositoryOf(reference: string): string {
  return reference.replace(/@.*$/, "").replace(/:[^/:]*$/, "");
}

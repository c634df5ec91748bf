import { posix } from "node:path";
import { z } from "zod";
import { hostPath } from "../terms/terms.ts";
import { byKind, later, map } from "../yaml/shape.ts";

/** The form of `image` in a worker's file, checked; `name` is what people and plans call it. */
export interface ImageYaml {
  readonly name: string;
  /** Absent: an image that the Engine has to have. */
  readonly from?: ImageSource;
}

const NAME = /^[a-z0-9][A-Za-z0-9._/:@-]{0,254}$/;
const name = z.string().regex(NAME, "must be the name of an image such as `corral/base`");

/** A tag has at most 128 characters; a port may stand before the first slash. */
const REFERENCE =
  /^(?:[a-z0-9.-]+(?::[0-9]{1,5})?\/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:\/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$/;

/** True for a name that a registry can have, without a digest. */
export function isReference(text: string): boolean {
  return text.length <= 255 && REFERENCE.test(text);
}

const reference = z.string().refine(isReference, "must be an image of a registry such as `python:3.13-slim`");
const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/, "must be `sha256:` and 64 hexadecimal digits");

const made = () =>
  map({ build: hostPath.optional(), pull: reference.optional(), digest: digest.optional() }).transform(
    ({ build, pull, digest }, context): ImageYaml => {
      const refuse = (message: string, path: string[] = []): never => {
        context.issues.push({ code: "custom", input: build, path, message });
        return z.NEVER;
      };
      if ((build === undefined) === (pull === undefined)) return refuse("needs either `build` or `pull`");
      if (build !== undefined) {
        const folder = posix.normalize(build).replace(/(?<=.)\/$/, "");
        if (digest !== undefined)
          return refuse("belongs to `pull`; what is built is known by its contents", ["digest"]);
        return { name: folder, from: { kind: "build", folder } };
      }
      const asked = pull ?? "";
      if (digest === undefined)
        return refuse(
          `needs \`digest: sha256:…\`, because a registry can change what a name means; \`corral images pull ${asked}\` prints it`,
        );
      return { name: asked, from: { kind: "pull", reference: asked, digest } };
    },
  );

/** A name, a folder to build, or an image to pull. */
export const image = byKind(
  { text: name.transform((only): ImageYaml => ({ name: only })), map: later(made) },
  "must be the name of an image, `{ build: FOLDER }` or `{ pull: NAME, digest: sha256:… }`",
);

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

import { constants } from "node:fs";
import { basename, dirname, join, posix, resolve } from "node:path";
import { z } from "zod";
import { sha256 } from "../../platform/sha256.ts";
import { openRegular } from "../../platform/write-file.ts";
import { present } from "../../text/present.ts";
import { hostPath } from "../terms/terms.ts";
import { byKind, later, map } from "../yaml/shape.ts";

/** The packages that a worker needs beside what its image has. Paths are relative to the project. */
export interface Environment {
  /** A `requirements.txt`, or packages, each as `name` or `name==version`; sorted. */
  readonly pip?: string | readonly string[];
  /** A `package-lock.json`, with its `package.json` beside it, or packages, each as `name` or `name@version`; sorted. */
  readonly npm?: string | readonly string[];
  /** Debian's packages, each as `name` or `name=version`; sorted. */
  readonly apt?: readonly string[];
  /** The only addresses at which the registries of pip and npm may be; absent: any that is public. */
  readonly addresses?: readonly string[];
}

const MAX_PACKAGES = 200;

const aptPackage = z
  .string()
  .max(200)
  .regex(/^[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~*-]+)?$/, "must be a package of Debian such as `tesseract-ocr`");

/** A name and versions, and no other place to take it from. */
const pythonPackage = z
  .string()
  .max(200)
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?((===?|[~!<>]=|[<>])[A-Za-z0-9.*+!_-]+(,(===?|[~!<>]=|[<>])[A-Za-z0-9.*+!_-]+)*)?$/,
    "must be a package of Python such as `lxml` or `lxml==5.3.0`",
  );

const nodePackage = z
  .string()
  .max(200)
  .regex(
    /^(@[a-z0-9][a-z0-9._-]*\/)?[a-z0-9][a-z0-9._-]*(@[A-Za-z0-9^~<>=.*+-]+)?$/,
    "must be a package of npm such as `cowsay` or `cowsay@1.6.0`",
  );

const lockFile = hostPath.refine(
  (path) => basename(path) === "package-lock.json",
  "must be a `package-lock.json`, which names each file and its contents",
);

/** `addresses`: as a rule of a network has them. */
export function environmentYaml(addresses: z.ZodType<string[]>) {
  return map({
    pip: byKind(
      { text: hostPath, list: packages(pythonPackage) },
      "must be a requirements file, or a list of packages",
    ).optional(),
    npm: byKind(
      { text: lockFile, list: packages(nodePackage) },
      "must be a `package-lock.json`, or a list of packages",
    ).optional(),
    apt: z.array(aptPackage).min(1).max(MAX_PACKAGES).optional(),
    addresses: addresses.optional(),
  })
    .refine(({ pip, npm, apt }) => pip ?? npm ?? apt, "needs at least one of `pip`, `npm` and `apt`")
    .transform(
      ({ pip, npm, apt, addresses }): Environment =>
        present({ pip, npm, apt: apt && [...new Set(apt)].sort(), addresses }),
    );
}

function packages(one: z.ZodType<string>) {
  return z
    .array(one)
    .min(1)
    .max(MAX_PACKAGES)
    .transform((names): readonly string[] => [...new Set(names)].sort());
}

/** What one environment is prepared from; the bytes that were read are the ones that are used. */
export interface EnvironmentInput {
  readonly kind: "pip" | "npm";
  /** As declared: the path of the file that names the packages, or their names. */
  readonly path: string;
  readonly files: readonly { readonly name: string; readonly content: Buffer }[];
  /** True if the contents of every file that is fetched are known: then nothing else is fetched. */
  readonly isLocked: boolean;
  /** Of the names and contents. */
  readonly sha256: string;
}

type EnvironmentInputs =
  | { readonly ok: true; readonly inputs: readonly EnvironmentInput[] }
  | { readonly ok: false; readonly faults: readonly string[] };

const MAX_INPUT_BYTES = 32 * 1024 * 1024;

/** Reads the files of an environment. The caller knows that they are the project's own, and that no worker may write them. */
export async function environmentInputs(projectDir: string, { pip, npm }: Environment): Promise<EnvironmentInputs> {
  const faults: string[] = [];
  const inputs: EnvironmentInput[] = [];
  const read = async (path: string): Promise<Buffer> => {
    await using file = await openRegular(resolve(projectDir, path), constants.O_RDONLY);
    if ((await file.stat()).size <= MAX_INPUT_BYTES) return await file.readFile();
    faults.push(`\`${path}\` is larger than ${MAX_INPUT_BYTES} bytes`);
    return Buffer.alloc(0);
  };
  if (typeof pip === "object") {
    const content = Buffer.from(`${pip.join("\n")}\n`);
    inputs.push(input("pip", pip, [{ name: "requirements.txt", content }], false));
  } else if (pip !== undefined) {
    const content = await read(pip);
    const { isLocked, fault } = requirements(content.toString());
    if (fault !== null) faults.push(`${pip}${fault}`);
    inputs.push(input("pip", pip, [{ name: "requirements.txt", content }], isLocked));
  }
  if (typeof npm === "object") {
    const content = Buffer.from(
      JSON.stringify({ private: true, dependencies: Object.fromEntries(npm.map(dependency)) }),
    );
    inputs.push(input("npm", npm, [{ name: "package.json", content }], false));
  } else if (npm !== undefined) {
    const files = [
      { name: "package.json", content: await read(join(dirname(npm), "package.json")) },
      { name: "package-lock.json", content: await read(npm) },
    ];
    inputs.push(input("npm", npm, files, true));
  }
  return faults.length > 0 ? { ok: false, faults } : { ok: true, inputs };
}

/** `@acme/demo@1.0.0` as its name and its version; without one, the newest. */
function dependency(spec: string): [name: string, version: string] {
  const at = spec.indexOf("@", 1);
  return at < 0 ? [spec, "latest"] : [spec.slice(0, at), spec.slice(at + 1)];
}

function input(
  kind: EnvironmentInput["kind"],
  from: string | readonly string[],
  files: EnvironmentInput["files"],
  isLocked: boolean,
): EnvironmentInput {
  const digest = sha256(JSON.stringify(files.map(({ name, content }) => [name, sha256(content)])));
  const path = typeof from === "string" ? from : listed(from, digest);
  return { kind, path, files, isLocked, sha256: digest };
}

const SHOWN_PACKAGES = 3;

/** Of many packages the first, and what tells the list from others. */
function listed(names: readonly string[], digest: string): string {
  const more = names.length - SHOWN_PACKAGES;
  const shown = names.slice(0, SHOWN_PACKAGES).join(",");
  return more <= 0 ? shown : `${shown},+${more}-${digest.slice(0, 8)}`;
}

/** Options that name another file or another place: the cell has neither. */
const ELSEWHERE =
  /^(-r|-c|-e|-f|-i|--(requirement|constraint|editable|find-links|index-url|extra-index-url|no-index))\b/;

/** With one `--hash` pip wants hashes of all. `fault` begins with the line, as `:3: …`. */
function requirements(text: string): { readonly isLocked: boolean; readonly fault: string | null } {
  const lines = text.split(/\r?\n/);
  const at = lines.findIndex((line) => ELSEWHERE.test(line.trim()));
  const option = lines[at]?.trim().split(/[\s=]/)[0];
  const fault =
    at < 0 ? null : `:${at + 1}: \`${option}\` is not taken: write all packages into this file, and nothing else`;
  return { isLocked: lines.some((line) => /(^|\s)--hash[=\s]/.test(line.replace(/(^|\s)#.*$/, ""))), fault };
}

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
function isReference(text: string): boolean {
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

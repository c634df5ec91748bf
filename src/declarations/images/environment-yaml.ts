import { basename } from "node:path";
import { z } from "zod";
import { present } from "../terms/present.ts";
import { hostPath } from "../terms/terms.ts";
import { map } from "../yaml/shape.ts";

/** The packages that a worker needs beside what its image has. Paths are relative to the project. */
export interface Environment {
  /** A `requirements.txt`. */
  readonly pip?: string;
  /** A `package-lock.json`, with its `package.json` beside it. */
  readonly npm?: string;
  /** Debian's packages, each as `name` or `name=version`; sorted. */
  readonly apt?: readonly string[];
  /** The only addresses at which the registries of pip and npm may be; absent: any that is public. */
  readonly addresses?: readonly string[];
}

const MAX_APT_PACKAGES = 200;

const aptPackage = z
  .string()
  .max(200)
  .regex(/^[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~*-]+)?$/, "must be a package of Debian such as `tesseract-ocr`");

const lockFile = hostPath.refine(
  (path) => basename(path) === "package-lock.json",
  "must be a `package-lock.json`, which names each file and its contents",
);

/** `addresses`: as a rule of a network has them. */
export function environmentYaml(addresses: z.ZodType<string[]>) {
  return map({
    pip: hostPath.optional(),
    npm: lockFile.optional(),
    apt: z.array(aptPackage).min(1).max(MAX_APT_PACKAGES).optional(),
    addresses: addresses.optional(),
  })
    .refine(({ pip, npm, apt }) => pip ?? npm ?? apt, "needs at least one of `pip`, `npm` and `apt`")
    .transform(
      ({ pip, npm, apt, addresses }): Environment =>
        present({ pip, npm, apt: apt && [...new Set(apt)].sort(), addresses }),
    );
}

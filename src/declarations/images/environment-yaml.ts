import { z } from "zod";
import { map } from "../yaml/shape.ts";

/** The packages that a worker needs beside what its image has. Paths are relative to the project. */
export interface Environment {
  /** A `requirements.txt`. */
  readonly pip?: string;
  /** A `package-lock.json`, with its `package.json` beside it. */
  readonly npm?: string;
  /** Debian's packages, each as `name` or `name=version`; sorted. */
  readonly apt?: readonly string[];
}

const MAX_APT_PACKAGES = 200;

const aptPackage = z
  .string()
  .max(200)
  .regex(/^[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~*-]+)?$/, "must be a package of Debian such as `tesseract-ocr`");

export const environment = map({
  apt: z.array(aptPackage).min(1).max(MAX_APT_PACKAGES).optional(),
})
  .refine(({ apt }) => apt, "needs `apt`")
  .transform(
    ({ apt }): Environment => ({
      ...(apt === undefined ? {} : { apt: [...new Set(apt)].sort() }),
    }),
  );

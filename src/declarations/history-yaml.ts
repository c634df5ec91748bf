import { z } from "zod";
import { byKind, map } from "./yaml/shape.ts";

/** `history` of `corral.yaml`: what is kept of the runs of this project; null: nothing. */
export const history = byKind(
  {
    text: z.literal("off", { error: "must be `off`, or a map with `days` and `runs`" }).transform(() => null),
    map: map({
      /** Records that are older are removed. */
      days: z.int().min(1).max(3650).default(30),
      /** Of more records, the oldest are removed. */
      runs: z.int().min(1).max(100_000).default(1000),
    }),
  },
  "must be `off`, or a map with `days` and `runs`",
);

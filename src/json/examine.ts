import { z } from "zod";
import { hasMoreValues } from "./parse-json.ts";

/** Up to so many values, every fault is looked for. In a larger value the first one is enough: each fault costs more than its value. */
const MAX_VALUES_WITH_ALL_FAULTS = 1000;
const MAX_FAULTS = 20;
const MAX_CHARS = 4000;
/** What `z.validate` sets, which says only whether there is a fault. */
const AT_THE_FIRST: z.core.ParseContext<z.core.$ZodIssue> & { readonly abortEarly: true } = { abortEarly: true };

/** What a stranger sent, as its schema has it. The time that this takes is bounded by the size of the value, whatever is wrong with it. */
export function examine<Schema extends z.ZodType>(
  schema: Schema,
  raw: unknown,
): z.ZodSafeParseResult<z.output<Schema>> {
  return schema.safeParse(raw, hasMoreValues(raw, MAX_VALUES_WITH_ALL_FAULTS) ? AT_THE_FIRST : undefined);
}

/** The first faults, for who sent the value. `describe` writes them. */
export function firstFaults(
  { issues }: z.ZodError,
  describe: (issues: readonly z.core.$ZodIssue[]) => string = (some) => z.prettifyError({ issues: [...some] }),
): string {
  return describe(issues.slice(0, MAX_FAULTS)).slice(0, MAX_CHARS);
}

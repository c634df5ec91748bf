import { z } from "zod";
import type { Tool } from "./tool.ts";

/** A tool's input as JSON Schema (draft 2020-12), from the caller's side: a field with a default may be absent. */
export function inputSchemaOf({ input }: Tool): Record<string, unknown> {
  return z.toJSONSchema(input, { io: "input", target: "draft-2020-12" });
}

import { z } from "zod";

/** A JSON Schema, or a part of one. */
export type JsonLook = Readonly<Record<string, unknown>>;

/** What a raw value may look like, as JSON Schema; `of` has that of a schema of zod. It may accept more than the parser, never less. */
export type Look = (of: (schema: z.ZodType) => JsonLook) => JsonLook;

const LOOK = Symbol("look");

/** Any value, for a transform that checks it. zod does not see what such a transform accepts: `look` says it, for editors. */
export function rawValue(look: Look): z.ZodUnknown {
  return Object.assign(z.unknown(), { [LOOK]: look });
}

/** Null for what is not a {@link rawValue}. */
export function lookOf(schema: object): Look | null {
  return LOOK in schema ? (schema[LOOK] as Look) : null;
}

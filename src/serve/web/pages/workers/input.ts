/** What a user typed as an input. `value` undefined: nothing. */
export type TypedInput =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly fault: string };

/** JSON, or else text; but what begins as JSON must be JSON. */
export function inputOf(text: string): TypedInput {
  const typed = text.trim();
  if (typed === "") return { ok: true, value: undefined };
  try {
    return { ok: true, value: JSON.parse(typed) };
  } catch (error) {
    if (!/^["[{]/.test(typed)) return { ok: true, value: text };
    return { ok: false, fault: `This begins as JSON, but is none: ${(error as Error).message}` };
  }
}

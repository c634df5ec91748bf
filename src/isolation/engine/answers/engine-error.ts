import { EngineTrouble } from "../../port/driver.ts";

/** The HTTP status of an error of the Engine's API; null if the Engine did not answer. */
export function statusCodeOf(error: unknown): number | null {
  const status = (error as { statusCode?: unknown }).statusCode;
  return typeof status === "number" ? status : null;
}

export function isGone(error: unknown): boolean {
  return statusCodeOf(error) === 404;
}

/** The Engine's own message, without the client's prefix. */
export function engineMessage(error: unknown): string {
  const { json, message } = error as { json?: { message?: unknown }; message?: string };
  return typeof json?.message === "string" ? json.message : (message ?? String(error));
}

/** An error of the Engine, or of the connection to it, as the error that every driver throws. */
export function engineTrouble(error: unknown): EngineTrouble {
  return error instanceof EngineTrouble ? error : new EngineTrouble(engineMessage(error), { cause: error });
}

/** Every failure of the Engine becomes an `EngineTrouble`. */
export async function told<Answer>(answer: Promise<Answer>): Promise<Answer> {
  return await answer.catch((error: unknown) => {
    throw engineTrouble(error);
  });
}

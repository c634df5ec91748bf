import { z } from "zod";

/** A name that a file uses; `fault`: what is wrong with it, or null. */
export const named = (fault: (name: string) => string | null) =>
  z.string().superRefine((name, context) => {
    const message = fault(name);
    if (message !== null) context.addIssue({ code: "custom", message });
  });

import type pc from "picocolors";

/** How a text is coloured; whether it is at all, its stream decides. */
export type Colors = ReturnType<typeof pc.createColors>;

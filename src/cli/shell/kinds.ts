/** The shells for which there is a script. */
export const COMPLETED_SHELLS = ["bash", "zsh", "fish"] as const;

export type CompletedShell = (typeof COMPLETED_SHELLS)[number];

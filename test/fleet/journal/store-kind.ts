/** Which store the tests of this folder have. Each project of tests has one; see `vitest.config.ts`. */
export type StoreKind = "sqlite" | "pglite" | "postgres";

export function storeKind(): StoreKind {
  const kind = process.env.CORRAL_TEST_STORE ?? "sqlite";
  if (kind !== "sqlite" && kind !== "pglite" && kind !== "postgres") throw new Error(`there is no store ${kind}`);
  return kind;
}

/** For what only the journal promises: it is a file of one machine. */
export const isSqlite = storeKind() === "sqlite";

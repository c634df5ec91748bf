import type { TestProject } from "vitest/node";
import { serverPrograms, startServer } from "../fleet/postgres/server-fixture.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The address of the PostgreSQL server of this run; other projects have none. */
    readonly postgres?: string;
  }
}

/** Set-up of the tests on a PostgreSQL server: one for all of them. */
export default async function postgresTier(tier: TestProject): Promise<() => Promise<void>> {
  if (serverPrograms() === null) throw new Error("there is no PostgreSQL server: apt-get install postgresql");
  const server = await startServer();
  tier.provide("postgres", server.url);
  return async () => await server[Symbol.asyncDispose]();
}

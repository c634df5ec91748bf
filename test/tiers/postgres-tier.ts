import type { TestProject } from "vitest/node";
import { serverPrograms, startServer, type TlsPlace } from "../fleet/postgres/server-fixture.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The address of the PostgreSQL server of this run; other projects have none. */
    readonly postgres?: string;
    /** Where the same server takes connections with TLS and passwords. */
    readonly postgresTls?: TlsPlace | null;
  }
}

/** Set-up of the tests on a PostgreSQL server: one for all of them. */
export default async function postgresTier(tier: TestProject): Promise<() => Promise<void>> {
  if (serverPrograms() === null) throw new Error("there is no PostgreSQL server: apt-get install postgresql");
  const server = await startServer({ tls: true });
  tier.provide("postgres", server.url);
  tier.provide("postgresTls", server.tls);
  return async () => await server[Symbol.asyncDispose]();
}

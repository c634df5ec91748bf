import { lookup } from "node:dns/promises";
import { SecretUnavailable } from "../../secrets/read-secret.ts";
import type { NetworkHost } from "../model/environment.ts";

/** How this machine reaches the hosts of allow lists. */
export function networkHostOf(): NetworkHost {
  return {
    // As every program of this machine resolves names, its own file of hosts included. It cannot be aborted.
    resolveName: async (host) => (await lookup(host, { all: true })).map(({ address }) => address),
    secretOf: async (name) => {
      throw new SecretUnavailable(`the project declares no secret ${name}`);
    },
  };
}

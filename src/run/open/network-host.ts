import { lookup } from "node:dns/promises";
import type { Project } from "../../declarations/project.ts";
import { trustedRoots } from "../../platform/trusted-roots.ts";
import { type Env, namedSecrets } from "../../secrets/read-secret.ts";
import type { NetworkHost } from "../model/environment.ts";

/** How this machine reaches the hosts of allow lists. `env`: Corral's own environment. */
export function networkHostOf({ secrets }: Project, env: Env): NetworkHost {
  let roots: Promise<readonly string[]> | null = null;
  return {
    // As every program of this machine resolves names, its own file of hosts included. It cannot be aborted.
    resolveName: async (host) => (await lookup(host, { all: true })).map(({ address }) => address),
    secretOf: namedSecrets(secrets, env),
    trustedRoots() {
      roots ??= trustedRoots(env);
      return roots;
    },
  };
}

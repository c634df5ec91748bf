import fc from "fast-check";
import { canonicalNetwork, meetNetwork, networkExcesses } from "../../src/sandbox/network/network.ts";
import { type AllowedNetwork, isLookedInto, type NetworkRule } from "../../src/sandbox/network/rule.ts";
import { allows } from "../sandbox/network/arbitraries.ts";

/*
 * Random allow lists and requests for a cell: every host is one server of the test, which speaks plain HTTP. What a client in
 * the cell meets must be what `allowed` says, which is computed without the code under test.
 */

/** Where the test's server listens. */
export interface Arena {
  /** At least two, e.g. `a.test`, `b.a.test`. */
  readonly hosts: readonly string[];
  readonly ports: readonly number[];
  /** The address of the server, IPv4, e.g. `127.0.0.1`. */
  readonly address: string;
}

/** One plain HTTP request of a client in the cell. */
export interface NetworkTry {
  readonly host: string;
  readonly port: number;
  readonly method: string;
  readonly path: string;
  /** `http://HOST:PORT/PATH`, as the client writes it. */
  readonly url: string;
  readonly allowed: boolean;
}

export interface NetworkWorld {
  /** Canonical: what the project gives. */
  readonly project: AllowedNetwork;
  /** What a worker asks for: the same list, or one of its own, all of which the project has. */
  readonly asked: AllowedNetwork;
  readonly tries: readonly NetworkTry[];
}

const METHODS = ["GET", "POST", "PUT"];
const PATHS = ["/", "/a", "/a/", "/b", "/a/b", "/a/b/", "/a/b/c", "/b/a", "/a/z/c"];
const PATTERNS = ["/", "/**", "/a", "/a/", "/*", "/a/**", "/*/b", "/a/*/c"];

export function networkWorlds({ hosts, ports, address }: Arena): fc.Arbitrary<NetworkWorld> {
  const above = [...new Set(hosts.map((host) => host.slice(host.indexOf(".") + 1)))];
  const to = fc
    .tuple(
      fc.constantFrom(...hosts, ...hosts, ...above.map((host) => `*.${host}`)),
      fc.constantFrom(...ports.map(String), ...ports.map(String), "*"),
    )
    .map((pair) => pair.join(":"));
  const bounds = fc.record(
    {
      methods: fc.uniqueArray(fc.constantFrom(...METHODS), { minLength: 1 }),
      paths: fc.uniqueArray(fc.constantFrom(...PATTERNS), { minLength: 1, maxLength: 3 }),
    },
    { requiredKeys: [] },
  );
  // All rules name the server's address, which is not public: of several that fit, the addresses of one count.
  const rule = fc.tuple(to, bounds).map(([target, more]): NetworkRule => {
    const bare = { to: target, addresses: [`${address}/32`], ...more };
    return isLookedInto(bare) ? { ...bare, tls: false } : bare;
  });
  const list = fc.array(rule, { minLength: 1, maxLength: 5 });
  const tries = fc.array(
    fc.tuple(
      fc.constantFrom(...hosts),
      fc.constantFrom(...ports),
      fc.constantFrom(...METHODS),
      fc.constantFrom(...PATHS),
    ),
    { minLength: 20, maxLength: 20 },
  );
  return fc.tuple(list, list, tries).map(([given, narrower, asks]): NetworkWorld => {
    const project = listOf(given);
    const met = meetNetwork({ allow: narrower }, project, "itself");
    // What both have is asked for, if that is anything and no more than the project's.
    const isLess = met !== false && met !== true && networkExcesses(met, project).length === 0;
    const asked = isLess ? met : project;
    return {
      project,
      asked,
      tries: asks.map(([host, port, method, path]) => {
        const attempt = { host, port, method, path, address, kind: "http", plain: true, key: "absent" } as const;
        const url = `http://${host}:${port}${path}`;
        return { host, port, method, path, url, allowed: allows(project, attempt) && allows(asked, attempt) };
      }),
    };
  });
}

function listOf(allow: readonly NetworkRule[]): AllowedNetwork {
  const network = canonicalNetwork({ allow });
  return typeof network === "boolean" ? { allow: [] } : network;
}

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { RunResult } from "../../../src/index.ts";
import type { RunEnvironment } from "../../../src/run/model/environment.ts";
import { run } from "../../../src/run/run.ts";
import type { AllowedNetwork } from "../../../src/sandbox/network/rule.ts";
import { SecretUnavailable } from "../../../src/secrets/read-secret.ts";
import { type ProjectFixture, python } from "../../run/project-fixture.ts";
import type { CountingResolver } from "./counting-resolver.ts";

export const CLIENT = python(readFileSync(join(import.meta.dirname, "client.py"), "utf8"));

/** What the test plays of the world outside of the cells. */
export interface Outside {
  readonly resolver: CountingResolver;
  /** In PEM: who is trusted for hosts that are looked into. */
  readonly authority?: string;
  /** Values by name. */
  readonly secrets?: Readonly<Record<string, string>>;
}

/** What the runs of the fixture share, with the world of the test in place of the machine's. */
export function environmentWith(
  { corral }: ProjectFixture,
  { resolver, authority, secrets = {} }: Outside,
): RunEnvironment {
  return {
    ...corral.environment,
    resolveName: resolver.resolve,
    secretOf: async (name) => {
      if (!Object.hasOwn(secrets, name)) throw new SecretUnavailable(`the secret ${name} is not there`);
      return secrets[name] ?? "";
    },
    ...(authority === undefined ? {} : { trustedRoots: async () => [authority] }),
  };
}

/** Runs a worker of the fixture with this network. Its project has the same, or `given`. */
export async function runWith(
  environment: RunEnvironment,
  name: string,
  network: AllowedNetwork,
  input: unknown,
  signal = new AbortController().signal,
  given = network,
): Promise<RunResult> {
  const { project } = environment;
  const worker = project.workers.get(name);
  if (worker === undefined) throw new Error(`the fixture has no worker ${name}`);
  const declared = { ...project, declaration: { ...project.declaration, network: given } };
  const asking = { ...worker, needs: { ...worker.needs, network } };
  return await run({ worker: asking, input, signal }, { ...environment, project: declared });
}

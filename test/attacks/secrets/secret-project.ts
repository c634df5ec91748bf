import {
  type OpenFixtureOptions,
  openProject,
  type ProjectFixture,
  type ProjectSpec,
} from "../../run/project-fixture.ts";
import { type CanaryKey, canaryKey } from "../canary-key.ts";

export interface SecretProject {
  readonly project: ProjectFixture;
  /** The value of the secret `token`. */
  readonly canary: CanaryKey;
}

/** A project whose workers may have the secrets `token` and `other` inside, from Corral's own environment. */
export function secretSpec(
  spec: ProjectSpec,
  canary: CanaryKey,
  options: OpenFixtureOptions = {},
): [ProjectSpec, OpenFixtureOptions] {
  const { sandbox = {}, yaml = {} } = spec;
  const declared = {
    policy: "default",
    ...spec,
    sandbox: { secrets: ["token", "other"], ...sandbox },
    yaml: { secrets: { token: { env: "TOKEN_OF_TEST" }, other: { env: "OTHER_OF_TEST" } }, ...yaml },
  };
  const values = { TOKEN_OF_TEST: canary.key, OTHER_OF_TEST: "other-value-of-test" };
  return [declared, { ...options, engineEnv: { ...process.env, ...values, ...options.engineEnv } }];
}

export async function openWithSecret(
  spec: ProjectSpec,
  options: OpenFixtureOptions = {},
  canary = canaryKey(),
): Promise<SecretProject & AsyncDisposable> {
  const project = await openProject(...secretSpec(spec, canary, options));
  return { project, canary, [Symbol.asyncDispose]: () => project[Symbol.asyncDispose]() };
}

/** Prints whether a file has exactly this value, which is in two parts so as not to be in the question. */
export function compares(path: string, [first, second]: CanaryKey["halves"]): string {
  const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
  return `printf '%s%s' ${quoted(first)} ${quoted(second)} | cmp -s - ${path} && echo same || echo other`;
}

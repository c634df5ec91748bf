import { type Env, readSecret, type SecretSource, SecretUnavailable } from "./read-secret.ts";

/** The value of a secret by its name. Rejects with `SecretUnavailable`, whose message holds no part of it. */
export type SecretOf = (name: string, signal: AbortSignal) => Promise<string>;

/** Reads each secret when it is used, so that Corral does not keep it. `env`: Corral's own environment. */
export function namedSecrets(sources: ReadonlyMap<string, SecretSource>, env: Env): SecretOf {
  return async (name, signal) => {
    const source = sources.get(name);
    if (source === undefined) throw new SecretUnavailable(`there is no secret \`${name}\` in corral.yaml`);
    const secret = (await readSecret(source, env, signal)).trim();
    // Only this can be the value of a header, and a server repeats exactly what it was sent.
    if (!/^[\x20-\x7e]+$/.test(secret))
      throw new SecretUnavailable(`the secret \`${name}\` has characters that an HTTP header cannot contain`);
    return secret;
  };
}

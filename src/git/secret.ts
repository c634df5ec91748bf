import type { GitRepo } from "../declarations/git/repo.ts";
import { type Env, readSecret, SecretUnavailable } from "../secrets/read-secret.ts";
import { Redactor } from "../secrets/redactor.ts";
import type { GitCommand } from "./git-program.ts";
import { GitRefusal } from "./refusal.ts";

/** What one git process needs to access a remote. A secret is only in its environment. */
interface Access extends Required<Pick<GitCommand, "settings" | "env">> {
  /** Removes the secret from git's output, in every form in which git may repeat it. */
  readonly redact: (text: string) => string;
}

/** Git runs this with the shell. Name and secret come from the environment, so that no other process sees them. */
const HELPER =
  '!f() { test "$1" = get && printf \'username=%s\\npassword=%s\\n\' "$CORRAL_GIT_USER" "$CORRAL_GIT_SECRET"; }; f';
/** Hosts that accept a token ignore the user name, but require one. */
const DEFAULT_USER = "git";

/** Reads the secret for each use, so that Corral does not keep it. `env`: Corral's own environment. */
export async function accessTo(repo: GitRepo, env: Env, signal: AbortSignal): Promise<Access> {
  if (repo.protocol === "ssh") {
    const socket = env.SSH_AUTH_SOCK;
    return { settings: [], env: socket === undefined ? {} : { SSH_AUTH_SOCK: socket }, redact: (text) => text };
  }
  if (repo.credentials === null) return { settings: [], env: {}, redact: (text) => text };
  const secret = await secretOf(repo, env, signal);
  const { origin, username } = new URL(repo.url);
  const user = username === "" ? DEFAULT_USER : decodeURIComponent(username);
  // HTTP repeats both words together, in base64.
  const redactor = new Redactor([secret, `${user}:${secret}`]);
  return {
    settings: [`credential.${origin}.helper=${HELPER}`],
    env: { CORRAL_GIT_USER: user, CORRAL_GIT_SECRET: secret },
    redact: (text) => redactor.text(text),
  };
}

async function secretOf({ name, credentials }: GitRepo, env: Env, signal: AbortSignal): Promise<string> {
  try {
    if (credentials === null) throw new SecretUnavailable("none are declared");
    return await readSecret(credentials, env, signal);
  } catch (error) {
    if (!(error instanceof SecretUnavailable)) throw error;
    const what = `The credentials of the repository ${name} are not available.`;
    throw new GitRefusal("GIT_CREDENTIALS", what, error.message);
  }
}

import { ROLES, type Role, Tokens } from "../../state/service/tokens.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { UsageError } from "../terminal/arguments.ts";
import { printList, printResult, type Terminal } from "../terminal/terminal.ts";

interface JsonOption {
  readonly json?: boolean;
}

export async function createVerb(
  { name, role, json }: JsonOption & { readonly name: string; readonly role: readonly string[] },
  terminal: Terminal,
): Promise<number> {
  const roles = role.length === 0 ? ["read"] : role;
  const wrong = roles.find((one) => !ROLES.some((known) => known === one));
  if (wrong !== undefined)
    throw new UsageError(`--role must be one of ${ROLES.join(", ")}, not ${JSON.stringify(wrong)}`);
  const { token, value } = await new Tokens(stateDirFrom(terminal.env)).create(name, roles as Role[]).catch(asUsage);
  printResult(terminal, json, { ...token, token: value }, () => value);
  return 0;
}

export async function listTokensVerb({ json }: JsonOption, terminal: Terminal): Promise<number> {
  printList(terminal, json, await new Tokens(stateDirFrom(terminal.env)).list(), {
    head: ["ID", "NAME", "ROLES", "MADE"],
    rowOf: ({ id, name, roles, createdAt }) => [id, name, roles.join(" "), createdAt],
    none: "corral: no tokens; `corral serve token create` makes one",
  });
  return 0;
}

export async function removeTokenVerb(id: string, terminal: Terminal): Promise<number> {
  if (!(await new Tokens(stateDirFrom(terminal.env)).remove(id)))
    throw new UsageError(`there is no token ${JSON.stringify(id)}; \`corral serve token ls\` lists them`);
  return 0;
}

function asUsage(error: unknown): never {
  throw error instanceof RangeError ? new UsageError(error.message, { cause: error }) : error;
}

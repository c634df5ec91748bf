import type { IncomingMessage } from "node:http";
import type { Tokens } from "../../state/service/tokens.ts";
import { ServiceFault } from "./fault.ts";
import type { Caller } from "./route.ts";

const MAX_HEADER_CHARS = 1024;

/** Whoever can open the Unix socket is the user who runs the service, or root. */
export const SOCKET_CALLER: Caller = { name: "socket", roles: ["admin"], token: null };

/** Who sent the request, by its token. @throws ServiceFault UNAUTHORIZED */
export async function authenticated({ headers }: IncomingMessage, tokens: Tokens): Promise<Caller> {
  const { authorization = "" } = headers;
  const given = authorization.length > MAX_HEADER_CHARS ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
  const token = given === undefined ? null : await tokens.find(given);
  if (token === null)
    throw new ServiceFault(
      401,
      "UNAUTHORIZED",
      "send a valid token: `Authorization: Bearer …`; `corral serve token create` makes one",
    );
  return { name: token.name, roles: token.roles, token: token.id };
}

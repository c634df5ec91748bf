import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Tokens } from "../../state/service/tokens.ts";
import { ServiceFault } from "./fault.ts";
import type { Caller } from "./route.ts";

const MAX_HEADER_CHARS = 1024;

/** A process that can open the Unix socket belongs to the user who runs the service, or to root. */
export const SOCKET_CALLER: Caller = { name: "socket", roles: ["admin"], token: null };

/** The token in the link to the page. It is nowhere on the disk, and ends with the service. */
export class PageToken {
  readonly value = `corral_${randomBytes(32).toString("base64url")}`;

  /** Null: the value is another one. */
  caller(value: string): Caller | null {
    return timingSafeEqual(hashOf(value), hashOf(this.value)) ? { name: "page", roles: ["admin"], token: null } : null;
  }
}

/** Who sent the request, by its token. @throws ServiceFault UNAUTHORIZED */
export async function authenticated(
  { headers }: IncomingMessage,
  tokens: Tokens,
  page: PageToken | null,
): Promise<Caller> {
  const { authorization = "" } = headers;
  const given = authorization.length > MAX_HEADER_CHARS ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
  const own = given === undefined ? null : (page?.caller(given) ?? null);
  if (own !== null) return own;
  const token = given === undefined ? null : await tokens.find(given);
  if (token === null)
    throw new ServiceFault(
      401,
      "UNAUTHORIZED",
      "send a valid token: `Authorization: Bearer …`; `corral serve token create` makes one",
      "unauthorized",
    );
  return { name: token.name, roles: token.roles, token: token.id };
}

function hashOf(value: string): Buffer {
  return createHash("sha256").update(value).digest();
}

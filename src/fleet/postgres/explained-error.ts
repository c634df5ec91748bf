import { QueueError } from "../model/queue-error.ts";
import { isCrowded, isHeldUp, isPassing } from "./lost-connection.ts";

const ADDRESS = "`queue:` or CORRAL_QUEUE";

/**
 * What a PostgreSQL server or the connection to it says, as an error for people: which server it is, and what to do. Others are returned
 * as they are. A password is in no error of the driver. `place`: the server without its user.
 */
export function explainedError(error: unknown, place: string): unknown {
  const { code = "" } = error as { code?: string };
  const reason = error instanceof Error ? error.message || code : String(error);
  const said = (text: string): QueueError => new QueueError(text, { cause: error });
  if (isHeldUp(error)) {
    const text =
      `PostgreSQL at ${place}: another transaction has held what Corral needs for a minute. Find it in pg_stat_activity, and end it with ` +
      "pg_terminate_backend. Corral ends those of machines itself, if `corral work --grants ROLE` of this version made their role.";
    return new QueueError(text, { cause: error, isPassing: true });
  }
  if (isCrowded(error)) {
    const text =
      `PostgreSQL at ${place} has no room for more locks or notices: ${reason}. Find who takes it in pg_locks and pg_stat_activity, and end ` +
      "it with pg_terminate_backend. Corral ends sessions of machines itself, if `corral work --grants ROLE` of this version made their role.";
    return new QueueError(text, { cause: error, isPassing: true });
  }
  if (isPassing(error)) {
    const text = `PostgreSQL at ${place} does not answer: ${reason}. Start it, or correct the address in ${ADDRESS}.`;
    return new QueueError(text, { cause: error, isPassing: true });
  }
  if (/^(28|3D)/.test(code))
    return said(`PostgreSQL at ${place} refuses the connection: ${reason}. ${refusedAdvice(code, reason)}`);
  if (code === DENIED)
    return said(
      `PostgreSQL at ${place} does not allow this: ${reason}. Use the address of the owner of Corral's tables. For machines, ` +
        "`corral work --grants ROLE` prints what the owner has to grant.",
    );
  // A server that is older than Corral supports refuses what a connection begins with.
  if (/unrecognized configuration parameter/.test(reason) && code === "42704") return said(tooOld(place));
  const advice = tlsAdvice(`${reason} ${code}`);
  return advice === null ? error : said(`The TLS connection to PostgreSQL at ${place} failed: ${reason}. ${advice}`);
}

export function tooOld(place: string): string {
  return `PostgreSQL at ${place} is older than version 15, in which a role may change who its members are. Use a newer server.`;
}

/** insufficient_privilege */
const DENIED = "42501";

/** Also if the error was explained already. */
export function isDenied(error: unknown): boolean {
  const { code, cause } = error as { code?: unknown; cause?: { code?: unknown } };
  return code === DENIED || cause?.code === DENIED;
}

function refusedAdvice(code: string, reason: string): string {
  if (/no encryption/.test(reason)) return `It wants TLS: add \`sslmode=verify-full\` to the address in ${ADDRESS}.`;
  if (/pg_hba\.conf/.test(reason)) return "Its pg_hba.conf has no line for this user, database and address: add one.";
  if (code === "28P01")
    return `Check user and password in ${ADDRESS}. A password that has expired is refused in the same words.`;
  return `Check user, password and database in ${ADDRESS}.`;
}

function tlsAdvice(said: string): string | null {
  if (/does not support SSL/i.test(said))
    return "Switch TLS on in the server (`ssl = on`), or write `sslmode=disable` into the address if no other machine can listen in.";
  if (/altname|ALTNAME_INVALID/i.test(said)) return "Use the name of the server that its certificate has.";
  if (/expired|not yet valid/i.test(said)) return "Renew the server's certificate, or correct the clock.";
  if (/SSL|TLS|certificate|self-signed|CERT_/i.test(said))
    return "Name the authority that signed the server's certificate with `sslrootcert=FILE` in the address.";
  return null;
}

import { filledIn, textBeside } from "../../platform/text-beside.ts";
import { SCHEMA, type Statements, schemaTexts } from "./connection.ts";

/** What a machine may call. */
const FUNCTIONS = [
  "corral.machine_join(text, text[], integer, text, integer)",
  "corral.machine_renew(text, integer)",
  "corral.machine_leave(text)",
  "corral.machine_offers(text)",
  "corral.machine_refuses(text, text, text)",
  "corral.machine_claim(text, text[], text[])",
  "corral.machine_deliver(text, text, integer, integer, text, text, text, text, text)",
  "corral.machine_give_back(text, text, integer, integer, double precision)",
  "corral.machine_withdrawn(text, text[], integer[], integer[])",
  "corral.machine_ask(text, text, integer, integer, integer, text)",
  "corral.machine_unask(text, text, integer, integer, integer)",
  "corral.machine_answers(text)",
  "corral.blobs_has(text[])",
  "corral.blob_put(text, bytea)",
  "corral.blob_piece(text, integer, integer)",
];

/** Of all machines that use a role; ten of them. */
const CONNECTIONS = 50;
/** As users of a pooler set them (docs/machines.md). */
const POOLER_SETTINGS = ["search_path=pg_catalog", "enable_seqscan=off", "jit=off"].map((one) => `'${one}'`).join(", ");

/** Why this is no name of a role that can be made for machines; null if it is one. */
export function roleFault(role: string): string | null {
  if (!/^[A-Za-z_][A-Za-z0-9_-]{0,62}$/.test(role))
    return "the name of a role has letters, digits, _ and -, and at most 63 characters";
  return /^(pg_|public$|none$)/i.test(role) ? "PostgreSQL keeps this name for itself" : null;
}

/**
 * The statements that give a role what `corral work` needs, and nothing else: the version of the tables to read, and functions, which
 * check that an item is its own, and give a blob only to those who know its digest.
 */
export function machineGrants(role: string, schema = SCHEMA): string[] {
  const fault = roleFault(role);
  if (fault !== null) throw new Error(`${JSON.stringify(role)}: ${fault}`);
  return [
    `GRANT USAGE ON SCHEMA corral TO "${role}"`,
    `GRANT SELECT ON corral.version TO "${role}"`,
    ...FUNCTIONS.map((name) => `GRANT EXECUTE ON FUNCTION ${name} TO "${role}"`),
    `DO $do$ BEGIN PERFORM corral.admit_role('${role}'); END $do$`,
  ].map(schemaTexts(schema));
}

/**
 * A script for `psql` that makes the role if it is missing, and gives it the rights that this version needs and no others. All of it is
 * one transaction. A role that could do more than the owner of the tables wants is refused, also if it can by a group, by all users, or by
 * another user's grant.
 */
export function machineRoleScript(role: string, version: string): string {
  return filledIn(textBeside(import.meta.url, "sql/machine-role.sql"), {
    ...{ ROLE: role, VERSION: version, CONNECTIONS, POOLER_SETTINGS },
    GRANTS: machineGrants(role)
      .map((grant) => `${grant};`)
      .join("\n"),
    FUNCTIONS: FUNCTIONS.map((name) => `'${name}'::regprocedure`).join(", "),
  });
}

/** What the user of this connection lacks of what machines need, in words for the owner of the tables. */
export async function lackingRights(db: Statements): Promise<string[]> {
  const functions = FUNCTIONS.map((name) => `('${name}')`);
  const rows = await db.query<{ lacking: string }>(
    `SELECT 'EXECUTE on ' || split_part(name, '(', 1) AS lacking FROM (VALUES ${functions}) AS functions (name)
     WHERE NOT coalesce(has_function_privilege(to_regprocedure(name), 'EXECUTE'), false)
     UNION ALL SELECT 'a count of what it writes' FROM pg_roles WHERE rolname = session_user
       AND to_regclass('corral.written_by_' || oid) IS NULL
       AND NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = to_regclass('corral.version')), 'MEMBER')`,
  );
  return rows.map(({ lacking }) => lacking);
}

import { SCHEMA, type Statements, schemaTexts } from "./connection.ts";

/** What a machine may call. */
const FUNCTIONS = [
  "corral.machine_join(text, text[], integer, text, integer)",
  "corral.machine_renew(text, integer)",
  "corral.machine_leave(text)",
  "corral.machine_offers(text)",
  "corral.machine_stands(text, text, text)",
  "corral.machine_claim(text, text[], text[])",
  "corral.machine_deliver(text, text, integer, integer, text, text, text, text, text)",
  "corral.machine_give_back(text, text, integer, integer, double precision)",
  "corral.machine_withdrawn(text, text[], integer[], integer[])",
  "corral.machine_ask(text, text, integer, integer, integer, text)",
  "corral.machine_unask(text, text, integer, integer, integer)",
  "corral.machine_answers(text)",
];

/** What a machine may do with tables: it reads the version, and reads and stores blobs. */
const TABLES = [
  { table: "corral.version", right: "SELECT" },
  { table: "corral.blobs", right: "SELECT" },
  { table: "corral.blobs", right: "INSERT" },
  { table: "corral.blobs", right: "UPDATE", column: "used_at" },
];

/** Why this is no name of a role that can be made for machines; null if it is one. */
export function roleFault(role: string): string | null {
  if (!/^[A-Za-z_][A-Za-z0-9_-]{0,62}$/.test(role))
    return "the name of a role has letters, digits, _ and -, and at most 63 characters";
  return /^(pg_|public$|none$)/i.test(role) ? "PostgreSQL keeps this name for itself" : null;
}

/**
 * The statements that give a role what `corral work` needs, and nothing else: it claims, delivers and gives back by functions, which
 * check that the item is its own.
 */
export function machineGrants(role: string, schema = SCHEMA): string[] {
  const fault = roleFault(role);
  if (fault !== null) throw new Error(`${JSON.stringify(role)}: ${fault}`);
  const columns = (column: string | undefined): string => (column === undefined ? "" : ` (${column})`);
  return [
    `GRANT USAGE ON SCHEMA corral TO "${role}"`,
    ...TABLES.map(({ table, right, column }) => `GRANT ${right}${columns(column)} ON ${table} TO "${role}"`),
    ...FUNCTIONS.map((name) => `GRANT EXECUTE ON FUNCTION ${name} TO "${role}"`),
  ].map(schemaTexts(schema));
}

/**
 * A script for `psql` that makes the role if it is missing, and gives it the rights that this version needs and no others. All of it is
 * one transaction. A role that could do more than the owner of the tables wants is refused.
 */
export function machineRoleScript(role: string, version: string, schema = SCHEMA): string {
  const grants = machineGrants(role, schema);
  const text = (name: string): string => `'${name}'`;
  const lines = [
    `-- The rights of machines in the database of the queue, for Corral ${version}. Run this as the owner of Corral's tables`,
    "-- when they are there (`corral fleet ls` makes them), and again after each upgrade:",
    `--   corral work --grants ${role} | psql -v ON_ERROR_STOP=1 OWNER_ADDRESS`,
    "-- A new role has no password yet. In psql:",
    `--   \\password ${role}`,
    "BEGIN;",
    "DO $do$ BEGIN",
    `  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = ${text(role)}) THEN CREATE ROLE "${role}" LOGIN; END IF;`,
    `  IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = ${text(role)})`,
    `    OR pg_has_role(${text(role)}, (SELECT relowner FROM pg_catalog.pg_class WHERE oid = 'corral.version'::regclass), 'MEMBER') THEN`,
    `    RAISE EXCEPTION 'the role % has all rights on Corral''s tables: use another one for machines', ${text(role)};`,
    "  END IF;",
    `  IF NOT has_database_privilege(${text(role)}, current_database(), 'CONNECT') THEN`,
    `    EXECUTE format('GRANT CONNECT ON DATABASE %I TO "${role}"', current_database());`,
    "  END IF;",
    "END $do$;",
    `REVOKE ALL ON SCHEMA corral FROM "${role}";`,
    `REVOKE ALL ON ALL TABLES IN SCHEMA corral FROM "${role}";`,
    `REVOKE ALL ON ALL FUNCTIONS IN SCHEMA corral FROM "${role}";`,
  ].map(schemaTexts(schema));
  return `${[...lines, ...grants.map((grant) => `${grant};`), "COMMIT;"].join("\n")}\n`;
}

/** What the user of this connection lacks of what machines need, in words for the owner of the tables. */
export async function lackingRights(db: Statements): Promise<string[]> {
  const functions = FUNCTIONS.map((name) => `('${name}')`);
  const tables = TABLES.map(({ table, right, column = "" }) => `('${table}', '${right}', '${column}')`);
  const rows = await db.query<{ lacking: string }>(
    `SELECT 'EXECUTE on ' || split_part(name, '(', 1) AS lacking FROM (VALUES ${functions}) AS functions (name)
     WHERE NOT coalesce(has_function_privilege(to_regprocedure(name), 'EXECUTE'), false)
     UNION ALL
     SELECT concat(r, ' of ' || nullif(c, ''), ' on ', t) FROM (VALUES ${tables}) AS tables (t, r, c)
     WHERE NOT coalesce(CASE WHEN c = '' THEN has_table_privilege(to_regclass(t), r)
                        ELSE has_column_privilege(to_regclass(t), c, r) END, false)`,
  );
  return rows.map(({ lacking }) => lacking);
}

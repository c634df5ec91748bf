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
    "-- A machine may have made functions that this would call with your rights.",
    "SET LOCAL search_path = pg_catalog, pg_temp;",
    "DO $do$ BEGIN",
    "  IF to_regclass('corral.version') IS NULL THEN",
    "    RAISE EXCEPTION 'Corral''s tables are not there yet: run `corral fleet ls` with the address of their owner, then this again';",
    "  END IF;",
    `  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = ${text(role)}) THEN`,
    "    -- Each machine has up to 5 connections.",
    `    CREATE ROLE "${role}" LOGIN CONNECTION LIMIT ${CONNECTIONS};`,
    "  END IF;",
    `  IF (SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication FROM pg_catalog.pg_roles WHERE rolname = ${text(role)})`,
    `    OR EXISTS (SELECT FROM pg_catalog.pg_roles g WHERE pg_has_role(${text(role)}, g.oid, 'MEMBER')`,
    "      AND (g.oid = (SELECT relowner FROM pg_catalog.pg_class WHERE oid = 'corral.version'::regclass)",
    "        OR g.rolname IN ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files', 'pg_signal_backend',",
    "          'pg_create_subscription', 'pg_maintain'))) THEN",
    `    RAISE EXCEPTION 'the role % has, or can get, rights that no machine may have: those of a superuser or of the owner of Corral''s tables, CREATEROLE, CREATEDB, REPLICATION, or files and sessions of the server. Use another one for machines', ${text(role)};`,
    "  END IF;",
    `  IF NOT has_database_privilege(${text(role)}, current_database(), 'CONNECT') THEN`,
    `    EXECUTE format('GRANT CONNECT ON DATABASE %I TO "${role}"', current_database());`,
    "  END IF;",
    "END $do$;",
    "-- A coordinator ends transactions of machines that stay open: for that it is a member of their role.",
    "DO $do$ DECLARE",
    "  tables_owner regrole := (SELECT relowner FROM pg_catalog.pg_class WHERE oid = 'corral.version'::regclass);",
    "BEGIN",
    `  IF NOT pg_has_role(tables_owner, ${text(role)}, 'USAGE') THEN EXECUTE format('GRANT "${role}" TO %s', tables_owner); END IF;`,
    "END $do$;",
    "-- A role may write its own settings, so any machine that uses it may have. Those that a pooler needs stay.",
    "DO $do$ DECLARE",
    `  machines oid := (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = ${text(role)});`,
    "  setting record;",
    "BEGIN",
    "  FOR setting IN SELECT d.datname, split_part(c, '=', 1) AS name FROM pg_catalog.pg_db_role_setting s",
    "    LEFT JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase, unnest(s.setconfig) AS c",
    `    WHERE s.setrole = machines AND c NOT IN (${POOLER_SETTINGS})`,
    "      AND NOT EXISTS (SELECT FROM pg_catalog.pg_settings p WHERE p.name = split_part(c, '=', 1) AND p.context <> 'user') LOOP",
    "    BEGIN",
    `      EXECUTE format('ALTER ROLE %I %s RESET %I', ${text(role)}, 'IN DATABASE ' || quote_ident(setting.datname), setting.name);`,
    "    EXCEPTION WHEN insufficient_privilege THEN",
    `      RAISE EXCEPTION 'the role % has set % for itself, and this user may not reset it: run this as a superuser, or with CREATEROLE', ${text(role)}, setting.name;`,
    "    END;",
    "  END LOOP;",
    "  IF (SELECT rolconnlimit FROM pg_catalog.pg_roles WHERE oid = machines) < 0 THEN",
    `    RAISE WARNING 'the role % may take all connections of the server: ALTER ROLE "${role}" CONNECTION LIMIT ${CONNECTIONS}', ${text(role)};`,
    "  END IF;",
    "  IF EXISTS (SELECT FROM pg_catalog.pg_shdepend WHERE refobjid = machines AND refclassid = 'pg_catalog.pg_authid'::regclass",
    "    AND deptype = 'o') THEN",
    `    RAISE WARNING 'the role % owns objects in a database of this server. Machines need none: look at them, then DROP OWNED BY "${role}" there, and run this again', ${text(role)};`,
    "  END IF;",
    "END $do$;",
    `REVOKE ALL ON SCHEMA corral FROM "${role}";`,
    `REVOKE ALL ON ALL TABLES IN SCHEMA corral FROM "${role}";`,
    `REVOKE ALL ON ALL SEQUENCES IN SCHEMA corral FROM "${role}";`,
    `REVOKE ALL ON ALL FUNCTIONS IN SCHEMA corral FROM "${role}";`,
  ].map(schemaTexts(schema));
  const checks = TOO_MUCH(text(role)).map(schemaTexts(schema));
  return `${[...lines, ...grants.map((grant) => `${grant};`), ...checks, "COMMIT;"].join("\n")}\n`;
}

/** Refuses a role that has more rights than those, by a group that it is in, by all users, or by what another user granted it. */
const TOO_MUCH = (role: string): string[] => [
  "DO $do$ DECLARE",
  "  too_much text;",
  "  ours oid := (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = 'corral.version'::regclass);",
  "BEGIN",
  "  SELECT string_agg(DISTINCT found.what, ', ') INTO too_much FROM pg_catalog.pg_roles g, LATERAL (",
  "    SELECT format('%s on %s', r.name, c.oid::regclass) AS what FROM pg_catalog.pg_class c,",
  "      unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS r (name)",
  "    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S') AND c.relnamespace = ours",
  "      AND NOT (r.name = 'SELECT' AND c.oid = 'corral.version'::regclass)",
  "      AND (has_table_privilege(g.oid, c.oid, r.name)",
  "        OR (r.name IN ('SELECT', 'INSERT', 'UPDATE') AND has_any_column_privilege(g.oid, c.oid, r.name)))",
  "    UNION ALL SELECT format('EXECUTE on %s', p.oid::regprocedure) FROM pg_catalog.pg_proc p",
  "    WHERE p.pronamespace = ours AND has_function_privilege(g.oid, p.oid, 'EXECUTE')",
  `      AND p.oid NOT IN (${FUNCTIONS.map((name) => `'${name}'::regprocedure`).join(", ")})`,
  "    UNION ALL SELECT 'CREATE on the schema' WHERE has_schema_privilege(g.oid, ours, 'CREATE')) AS found",
  `  WHERE pg_has_role(${role}, g.oid, 'MEMBER');`,
  "  IF too_much IS NOT NULL THEN",
  `    RAISE EXCEPTION 'the role % has more rights than machines need, by a group, by all users, or by another user''s grant: %. Use a new role', ${role}, too_much;`,
  "  END IF;",
  "END $do$;",
];

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

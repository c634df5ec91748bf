import { SCHEMA, schemaTexts } from "./connection.ts";

/** What a machine may call. */
const FUNCTIONS = [
  "machine_join(text, text[], integer, text, integer)",
  "machine_renew(text, integer)",
  "machine_leave(text)",
  "machine_offers(text)",
  "machine_stands(text, text, text)",
  "machine_claim(text, text[], text[], text[])",
  "machine_deliver(text, text, integer, integer, text, text, text, text, text)",
  "machine_give_back(text, text, integer, integer, double precision)",
  "machine_withdrawn(text, text[], integer[], integer[])",
];

/**
 * The statements that give a role what `corral work` needs, and nothing else: of the tables it can read the version and
 * blobs, and store blobs. It claims, delivers and gives back by functions, which check that the item is its own.
 */
export function machineGrants(role: string, schema = SCHEMA): string[] {
  if (!/^[A-Za-z_][A-Za-z0-9_-]{0,62}$/.test(role)) throw new Error(`${JSON.stringify(role)} is no name of a role`);
  const quoted = `"${role}"`;
  const texts = [
    `GRANT USAGE ON SCHEMA corral TO ${quoted}`,
    `GRANT SELECT ON corral.version TO ${quoted}`,
    `GRANT SELECT, INSERT, UPDATE (used_at) ON corral.blobs TO ${quoted}`,
    ...FUNCTIONS.map((name) => `GRANT EXECUTE ON FUNCTION corral.${name} TO ${quoted}`),
  ];
  return texts.map(schemaTexts(schema));
}

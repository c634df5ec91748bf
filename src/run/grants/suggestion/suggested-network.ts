import { type Document, isMap, isSeq } from "yaml";
import { isAmong, type NetworkRule } from "../../../sandbox/network/rule.ts";
import type { GrantRecord } from "../../model/grant.ts";
import { put } from "./edited-yaml.ts";

const NETWORK = ["sandbox", "network"];

/** What a project has that declares no sandbox: with `network` alone it would have no files. */
const UNDECLARED = { zones: { cache: { mode: "rw" }, workspace: { mode: "rw" } }, own_paths: "allowed" };

/** The rules of the hosts that one worker was granted; without `worker`, those of all. */
export function rulesGranted(grants: readonly GrantRecord[], worker?: string): NetworkRule[] {
  const rules = grants.flatMap((grant) =>
    "to" in grant && (worker === undefined || grant.granted.includes(worker)) ? grant.rules : [],
  );
  return [...new Map(rules.map((rule) => [JSON.stringify(rule), rule])).values()];
}

/** Changes a worker's declaration so that it reaches what it was granted, within the same bounds. */
export function declareRules(document: Document, rules: readonly NetworkRule[]): void {
  add(
    document,
    rules.map(({ to, methods, paths, tls }) => {
      const bounds = Object.entries({ methods, paths, tls }).filter(([, bound]) => bound !== undefined);
      // What it does not say it has from its caller.
      return bounds.length === 0 ? to : { to, ...Object.fromEntries(bounds) };
    }),
  );
}

/** The project is the ceiling: what none of its entries includes is added. */
export function allowHosts(document: Document, rules: readonly NetworkRule[]): void {
  const hosts = [...new Set(rules.map(({ to }) => to))];
  const missing = hosts.filter((to) => !isAmong(to, targetsIn(document)));
  if (missing.length === 0 || document.getIn(NETWORK) === true) return;
  if (!document.hasIn(["sandbox"])) document.setIn(["sandbox"], document.createNode(UNDECLARED));
  add(document, missing);
}

function targetsIn(document: Document): string[] {
  return entriesIn(document).flatMap((entry) => {
    if (typeof entry === "string") return entry;
    const { to } = Object(entry) as { to?: unknown };
    return typeof to === "string" ? to : [];
  });
}

function entriesIn(document: Document): unknown[] {
  const list = document.getIn([...NETWORK, "allow"]);
  return isSeq(list) ? (list.toJS(document) as unknown[]) : [];
}

function add(document: Document, entries: readonly unknown[]): void {
  const known = entriesIn(document).map((entry) => JSON.stringify(entry));
  const missing = entries.filter((entry) => !known.includes(JSON.stringify(entry)));
  if (missing.length === 0 || document.getIn(NETWORK) === true) return;
  const list = document.getIn([...NETWORK, "allow"]);
  if (isSeq(list)) for (const entry of missing) list.add(document.createNode(entry, { flow: true }));
  else if (isMap(document.getIn(NETWORK))) put(document, [...NETWORK, "allow"], missing);
  else put(document, NETWORK, { allow: missing });
}

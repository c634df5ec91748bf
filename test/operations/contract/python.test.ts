import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { type OperationName, ROUTES } from "../../../src/operations/contract/routes.ts";

const CLIENT = join(import.meta.dirname, "../../../python/src/corral/_async");
/** For the page, the command line and who looks after a service, by name or by its first part. */
const NOT_IN_PYTHON = [
  "ci.*",
  "host.*",
  "projects.check",
  "projects.images",
  "changesets.review",
  "conversions.file",
  "ports.connect",
];

/** A path as its parts: null is any. */
type Parts = readonly (string | null)[];

it("asks for a method in Python of each operation, or to be told that it has none", () => {
  const asked = globSync(join(CLIENT, "*.py")).flatMap((file) => askedIn(readFileSync(file, "utf8")));
  const missing = (Object.keys(ROUTES) as OperationName[]).filter((name) => !isAsked(name, asked));
  const listed = (name: string) => NOT_IN_PYTHON.includes(name) || NOT_IN_PYTHON.includes(name.replace(/\..*/, ".*"));
  expect(missing.filter((name) => !listed(name))).toEqual([]);
  const idle = NOT_IN_PYTHON.filter(
    (row) => !missing.some((name) => row === name || row === name.replace(/\..*/, ".*")),
  );
  expect(idle, "they have one").toEqual([]);
});

/** `path_of("runs", self.id)`, and `self._path("signal")` of a command. */
function askedIn(source: string): Parts[] {
  return [...source.matchAll(/(path_of|self\._path)\(((?:[^()]|\([^()]*\))*)\)/g)].map(([, call, args = ""]) => {
    const parts = args.split(",").map((one) => one.trim());
    const named = parts.filter((one) => one !== "").map((one) => /^"(\w+)"$/.exec(one)?.[1] ?? null);
    return call === "path_of" ? named : ["sessions", null, "commands", null, ...named];
  });
}

function isAsked(name: OperationName, asked: readonly Parts[]): boolean {
  const parts = ROUTES[name][1].replace(/^\/v1\//, "").split("/");
  return asked.some(
    (one) => one.length === parts.length && one.every((part, at) => part === null || part === parts[at]),
  );
}

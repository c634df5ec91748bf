import { isReservedName } from "../../sandbox/reserved.ts";

const NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/;

/** What is wrong with a name of a worker, or null. */
export function nameFault(name: string): string | null {
  return NAME.test(name) ? null : "must be 1 to 64 letters, digits, `.`, `_` or `-`, and not begin with a dot";
}

/** What is wrong with a name of a mount, which becomes a directory at the top of the cell, or null. */
export function mountNameFault(name: string): string | null {
  return nameFault(name) ?? (isReservedName(name) ? "is reserved: it would hide a system directory of the cell" : null);
}

/** What is wrong with a name of an environment variable, or null. */
export function variableNameFault(name: string): string | null {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,127}$/.test(name))
    return "must be letters, digits and `_`, and not begin with a digit";
  return name.startsWith("CORRAL_") ? "is reserved: names that begin with CORRAL_ are Corral's own" : null;
}

/** What is wrong with the name of a repository, which becomes that of a folder of Corral's own, or null. */
export function repositoryNameFault(name: string): string | null {
  return /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(name)
    ? null
    : "must be 1 to 64 letters, digits, `_` or `-`, and begin with a letter or digit";
}

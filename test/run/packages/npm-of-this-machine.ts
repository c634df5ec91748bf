import { existsSync } from "node:fs";
import { join } from "node:path";

/** Where npm is installed on this machine; undefined: it is not. */
export const NPM = ["/usr/lib/node_modules/npm", "/usr/local/lib/node_modules/npm"].find(existsSync);

/** The folder of the Node that the tests run with. */
export const NODE = join(import.meta.dirname, "../../../node_modules/node/bin");

/** Zones of a project, which cells see at `/npm` and `/nodejs`. */
export const TOOL_ZONES = { npm: { path: NPM ?? "" }, nodejs: { path: NODE } };

export const npm = (...args: string[]): string => ["/nodejs/node", "/npm/bin/npm-cli.js", ...args].join(" ");

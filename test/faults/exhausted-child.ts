import { openSync } from "node:fs";
import { currentOwner, isDead, type Owner } from "../../src/state/owner.ts";

/** Uses up every descriptor that this process may have, and then decides whether its parent, which is alive, is dead. */
const [owner] = process.argv.slice(2);
const parent = JSON.parse(owner ?? "null") as Owner;
const self = currentOwner();
try {
  for (;;) openSync("/dev/null", "r");
} catch {
  // None is left.
}
const attempt = <T>(act: () => T): T | string => {
  try {
    return act();
  } catch (error) {
    return (error as Error).message;
  }
};
process.stdout.write(JSON.stringify({ dead: attempt(() => isDead(parent, self)), self: attempt(currentOwner) }));

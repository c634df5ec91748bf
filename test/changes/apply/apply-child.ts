/**
 * Applies a changeset in a process of its own, or finishes what another one began, and kills itself with `kill -9`
 * before a step: `node apply-child.ts ORDER.json`. Prints the names of the steps as it takes them.
 */
import fs from "node:fs";
import { applyChangeset, continueApplication } from "../../../src/changes/apply/application.ts";
import type { Changeset } from "../../../src/changes/model/changeset.ts";

export interface Order {
  readonly changeset: Changeset;
  readonly logDir: string;
  /** The step, from 1, before which it dies. */
  readonly killAt: number;
}

const { changeset, logDir, killAt } = JSON.parse(fs.readFileSync(process.argv[2] ?? "", "utf8")) as Order;
let steps = 0;
const onStep = (step: string): void => {
  steps += 1;
  if (steps === killAt) process.kill(process.pid, "SIGKILL");
  fs.writeSync(1, `${step}\n`);
};
const options = { logDir, onStep };
const finished = await continueApplication(changeset, options);
if (finished === null)
  await applyChangeset(
    changeset,
    changeset.changes.map(({ index }) => index),
    options,
  );

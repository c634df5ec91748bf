/**
 * Applies a changeset, and is killed just before or just after what was applied is in the audit trail. Its arguments are the state directory,
 * the id of the changeset, and `before` or `after`.
 */
import { TrailFile } from "../../src/audit/trail.ts";
import { Changesets } from "../../src/operations/changesets.ts";

const [, , stateDir = "", id = "", when = ""] = process.argv;
const { append } = TrailFile.prototype;
TrailFile.prototype.append = async function (record) {
  if (record.type !== "changes_applied") return await append.call(this, record);
  if (when === "after") await append.call(this, record);
  process.kill(process.pid, "SIGKILL");
  await new Promise(() => setInterval(() => {}, 1000));
};
await using changesets = await Changesets.open(stateDir, {});
await changesets.apply(id, { approval: "agreed", by: "first" });

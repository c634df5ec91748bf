import { join } from "node:path";
import { loadPolicy, loadSeccompProfile } from "../../../src/declarations/policy/policy.ts";
import { dockerDriver } from "../../../src/isolation/engine/driver.ts";
import { gateBinary } from "../../../src/isolation/engine/images/catalog.ts";
import { connect } from "../../../src/isolation/engine/open.ts";
import { makeOwnerDir } from "../../../src/state/live-dir.ts";
import { currentOwner, loadSealKey } from "../../../src/state/owner.ts";
import { mount } from "../../sandbox/sandboxes.ts";
import { pinnedPlan } from "../pinned-plan.ts";

/**
 * An orchestrator on the state directory that it is given: starts one cell with one mount, tells its run and its
 * directory on standard output, and waits to be killed.
 */
const stateDir = process.argv[2] ?? "";
const { docker } = await connect({});
const owner = currentOwner();
const liveDir = join(stateDir, "live");
const ownerDir = await makeOwnerDir(liveDir, owner);
const maker = { owner, sealKey: await loadSealKey(stateDir) };
const driver = dockerDriver({
  docker,
  maker,
  liveDir,
  startedDir: join(stateDir, "containers"),
  namesDir: join(stateDir, "names"),
  seccomp: { corral: await loadSeccompProfile() },
});
const image = await driver.imageFacts("corral/base");
if (image === null) throw new Error("the tests need the image corral/base");
const gate = await gateBinary({ docker, stateDir });
const { plan, pins } = await pinnedPlan({
  command: ["sleep", "300"],
  image,
  policy: await loadPolicy("untrusted", { dirs: [] }),
  plumbing: { gate, socket: gate },
  mounts: [mount("/data", "ro", { host: ownerDir })],
});
const started = await driver.start({ plan, pins, signal: new AbortController().signal, onOutput: () => {} });
if (!started.ok) throw new Error(JSON.stringify(started.violations));
started.cell.release(Buffer.alloc(0));
console.log(JSON.stringify({ run: plan.run, ownerDir }));
// Ends with its parent, should that die before it kills this process.
process.stdin.resume().on("end", () => process.exit());

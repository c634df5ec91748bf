import { expect, it } from "vitest";
import { openProject, sh } from "../project-fixture.ts";
import { liveRegistry } from "./live-registry.ts";

const live = await liveRegistry("debian", "dists/bookworm/InRelease");
if (typeof live === "string") console.log(`The test of apt with a live mirror is skipped: ${live}.`);

it.skipIf(typeof live === "string")(
  "apt-get fetches lists and a package as an ordinary user of a read-only cell",
  async () => {
    const packages = [{ kind: "debian", addresses: [`${typeof live === "string" ? "" : live.address}/32`] }];
    await using project = await openProject({
      workers: {
        w: {
          image: "corral/base",
          command: sh("cd /tmp; (apt-get update && apt-get download hello) >&2; ls *.deb; id -u"),
          limits: { memory: "1g" },
          sandbox: { network: { packages } },
        },
      },
      sandbox: { network: { packages }, limits: { memory: "1g" } },
      policy: "default",
    });
    const result = await project.run("w");
    expect(result.stdout, result.stderr).toMatch(/^hello_\S+\.deb\n[1-9]\d*\n$/);
  },
);

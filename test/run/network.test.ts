import { describe, expect, it } from "vitest";
import { openProject, sh } from "./project-fixture.ts";

/** The names of the interfaces that a cell has. */
const INTERFACES = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | grep -vx lo | sort | tr '\\n' ' '";

describe("a network that project, policy and worker give", () => {
  it("is there for that worker, and for no worker that it calls without asking for it", async ({ skip }) => {
    await using project = await openProject({
      workers: {
        online: {
          command: sh(`${INTERFACES}; echo; corral-call offline; corral-call greedy; corral-call asks`),
          sandbox: { network: true },
          calls: ["offline", "greedy", "asks"],
        },
        offline: { command: sh(`${INTERFACES}; echo none`) },
        greedy: {
          command: sh(`${INTERFACES}; echo; corral-call offline`),
          sandbox: { network: true },
          calls: ["offline"],
        },
        asks: { command: sh(":"), sandbox: { network: { allow: ["example.org:443"] } } },
      },
      sandbox: { network: true },
      policy: "default",
    });
    const networks = await project.docker.listNetworks();
    skip(!networks.some(({ Driver }) => Driver === "bridge"), "this Engine was started without a bridge network");
    const result = await project.run("online");
    expect(result).toMatchObject({ enforcement: { requested: { network: "open" }, actual: { network: "open" } } });
    expect(result.stdout).toMatch(/^eth0 \nnone\neth0 \nnone\n$/);
    expect(result.calls.map(({ worker, status }) => `${worker} ${status}`)).toEqual([
      "offline succeeded",
      "greedy succeeded",
      "asks succeeded",
    ]);
    expect(result.calls[0]?.enforcement?.actual.network).toBe("loopback only");
    expect(result.calls[2]?.enforcement?.actual.network).toBe("loopback only, 1 host through Corral");
    expect(await project.traces()).toEqual([]);
  });
});

import { expect, it } from "vitest";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { openSecondEngine } from "../second-engine.ts";
import { HANDY, openSessionIn } from "./session-fixture.ts";

// Shortly, `faults/faults.test.ts` loses commands of a session, and `run/lost.test.ts` kills the Engine of a run.
it.runIf(AT_LENGTH)(
  "where the Engine goes away under a command it is lost, nothing is made up, and one that is there again runs the next",
  async () => {
    await using engine = await openSecondEngine();
    await engine.start();
    const spec = { workers: { w: HANDY }, zones: { docs: "ro", out: "rw" } } as const;
    await using s = await openSessionIn(spec, { engineEnv: engine.env });
    const never = new AbortController().signal;
    const stopped = Promise.withResolvers<void>();
    const stop = (): void => void engine.stop("SIGKILL").then(stopped.resolve, stopped.reject);
    const lost = await s.session.exec({ command: "echo begun; sleep 4724" }, never, stop);
    expect(lost).toMatchObject({ status: "lost", exitCode: null, signal: null, stdout: "begun\n", cellReplaced: true });
    expect(s.project.events.map((event) => event.type)).toContain("trouble");
    await stopped.promise;
    const meanwhile = await s.tool("exec", { command: "true" });
    expect(meanwhile).toMatchObject({ ok: true, data: { status: "lost" } });
    expect(meanwhile.ok && meanwhile.text).not.toContain(s.project.dir);
    expect(await s.tool("list_files", { path: "/" })).toMatchObject({ ok: true });
    await engine.start();
    expect((await s.exec("echo after")).stdout).toBe("after\n");
  },
);

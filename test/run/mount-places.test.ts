import { describe, expect, it } from "vitest";
import { openProject, sh } from "./project-fixture.ts";

const PLACES = { tmp: "/tmp/checkout", root: "/root/deep/checkout", home: "/home/alice/checkout", srv: "/srv/a" };
const paths = Object.fromEntries(
  Object.entries(PLACES).map(([name, at]) => [`in-${name}`, { path: `./docs/${name}`, at }]),
);

describe("a mount with a place of its own", () => {
  it("is there for commands and for tools, also below directories of the cell, which stay what they are", async () => {
    const files = Object.fromEntries(Object.keys(PLACES).map((name) => [`docs/${name}/a`, `${name}\n`]));
    const read = (path: string) =>
      `curl -s --unix-socket "$CORRAL_SOCKET" -d '{"path":"${path}/a"}' http://corral/v1/tools/read_file | jq -r .text`;
    const all = Object.values(PLACES);
    const script = [...all.map((path) => `cat ${path}/a`), ...all.map(read), "touch /tmp/mine", "ls -d /tmp/* /root/*"];
    const write = ` && ! touch /root/deep/checkout/b 2>/dev/null && ! touch ${PLACES.tmp}/b 2>/dev/null && echo closed`;
    await using project = await openProject({
      workers: { w: { command: sh(`${script.join("; ")}${write}`), sandbox: { inherit: true } } },
      zones: { docs: "ro" },
      files,
      sandbox: { zones: paths },
    });
    const { status, stdout, stderr } = await project.run("w");
    expect({ status, stderr }).toEqual({ status: "succeeded", stderr: "" });
    expect(stdout.split("\n").filter((line) => line !== "")).toEqual([
      ..."tmp root home srv tmp root home srv".split(" "),
      "/root/deep",
      "/tmp/checkout",
      "/tmp/mine",
      "closed",
    ]);
  });

  it("cannot be one of the cell's own, or of another mount", async () => {
    const open = async (zones: object) => {
      return await openProject({ workers: {}, zones: { docs: "ro" }, sandbox: { zones } });
    };
    for (const at of ["/etc/x", "/tmp", "/root", "/home/worker/x", "/home", "/", "srv/a", "/srv/../srv/a", "/.corral"])
      await expect(open({ x: { path: "./docs", at } }), at).rejects.toThrow(/sandbox\.zones\.x\.at/);
    const twice = { docs: { path: "./docs" }, x: { path: "./docs", at: "/docs" } };
    await expect(open(twice)).rejects.toThrow("sandbox.zones.x: is at `/docs`, as `docs` is");
  });
});

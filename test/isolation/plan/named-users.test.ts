import { describe, expect, it } from "vitest";
import { namedUsers } from "../../../src/isolation/plan/user.ts";

const nothing = { mounts: [], tmpfs: [], env: { HOME: "/home/worker" } };
const passwd = "root:x:0:0:root:/root:/bin/bash\ncorral:x:65532:65532::/home/worker:/bin/sh\n";
const group = "root:x:0:\ncorral:x:65532:\n";

describe("the users of a cell", () => {
  it("are those of its image, if it names the cell's user and group", () => {
    for (const id of [0, 65532])
      expect(namedUsers({ passwd, group }, { ...nothing, user: { uid: id, gid: id } })).toEqual({});
  });

  it("have a row more for a number that the image does not name, with the cell's home", () => {
    expect(namedUsers({ passwd, group }, { ...nothing, user: { uid: 1000, gid: 0 } })).toEqual({
      passwd: `${passwd}worker:x:1000:0:worker:/home/worker:/bin/sh\n`,
    });
    expect(namedUsers({ passwd: "", group: "x:x:7:" }, { ...nothing, user: { uid: 0, gid: 100 } })).toEqual({
      passwd: "root:x:0:100:root:/home/worker:/bin/sh\n",
      group: "x:x:7:\nworker:x:100:\n",
    });
  });

  it("have no name twice, and keep bytes that are no text", () => {
    const odd = "worker:x:1:1::/:/bin/sh\n\xff\xfe:x:2:2::/:/\nworker-1000:x:3:3::/:/\n+::::::";
    const { passwd: made } = namedUsers({ passwd: odd, group: null }, { ...nothing, user: { uid: 1000, gid: 1000 } });
    expect(made).toBe(`${odd}\nworker--1000:x:1000:1000:worker--1000:/home/worker:/bin/sh\n`);
  });

  it("stay the image's, if they are no plain file there, or the plan has something in their place", () => {
    const user = { uid: 1000, gid: 1000 };
    expect(namedUsers({ passwd: null, group: null }, { ...nothing, user })).toEqual({});
    const tmpfs = [{ path: "/etc", bytes: 1, exec: false, mode: "0755" }];
    expect(namedUsers({ passwd, group }, { ...nothing, tmpfs, user })).toEqual({});
  });
});

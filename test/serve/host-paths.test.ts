import { expect, it } from "vitest";
import { hiddenIn, hidingHostPaths, withoutHostPaths } from "../../src/serve/http/answer.ts";

const hide = hidingHostPaths([
  { path: "/home/ann", name: "~" },
  { path: "/home/ann/pa+pers", name: "PROJECT" },
  { path: "/", name: "never" },
  { path: '/srv/a "b" \\c', name: "STATE" },
]);

it.each([
  ["ENOENT: /home/ann/pa+pers/workers/a.worker:3", "ENOENT: PROJECT/workers/a.worker:3"],
  ["'/home/ann/pa+pers' is gone", "'PROJECT' is gone"],
  ["/home/ann/.ssh and /home/anna/x", "~/.ssh and /home/anna/x"],
  ["write /out/home/ann/x", "write /out/home/ann/x"],
  ["nothing", "nothing"],
])("%s becomes %s", (text, expected) => {
  expect(hide(text)).toBe(expected);
});

it("looks at each text of an answer as it is, whatever JSON makes of its characters", () => {
  const body = { message: 'ENOENT: \n/srv/a "b" \\c/x', of: [{ "/home/ann/x": null, line: 3 }] };
  expect(hiddenIn(body, hide)).toEqual({ message: "ENOENT: \nSTATE/x", of: [{ "~/x": null, line: 3 }] });
});

it.each([
  ["short enough below /home/me/my papers", "short enough below …"],
  ["/home/me/my papers, old/x is longer than 76 bytes; set CORRAL_STATE_DIR", "…; set CORRAL_STATE_DIR"],
  [
    "No Engine at unix:///run/my docker.sock (the default): it does not exist",
    "No Engine at … (the default): it does not exist",
  ],
  ["storage overlay2; data /var/lib/docker; runtimes runc", "storage overlay2; data …; runtimes runc"],
  ["corral/base is missing", "corral/base is missing"],
])("of the machine, %s becomes %s", (detail, expected) => {
  expect(withoutHostPaths(detail, "/home/me/my papers, old")).toBe(expected);
});

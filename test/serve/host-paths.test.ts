import { expect, it } from "vitest";
import { hidingHostPaths } from "../../src/serve/http/host-paths.ts";

const hide = hidingHostPaths([
  { path: "/home/ann", name: "~" },
  { path: "/home/ann/pa+pers", name: "PROJECT" },
  { path: "/", name: "never" },
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

import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "../cli/cli-project.ts";
import { startService } from "./service-client.ts";

let project: CliProject;
let file: string;
const first = `corral_${"a".repeat(43)}`;
const second = `corral_${"b".repeat(43)}`;

beforeAll(async () => {
  project = await cliProject({ yaml: { version: 1 }, workers: {} });
  file = join(project.dir, "token");
});
afterAll(async () => await project?.[Symbol.asyncDispose]());

const written = async (text: string, mode = 0o600): Promise<void> => {
  await writeFile(file, text);
  await chmod(file, mode);
};
const statuses = async (token: string): Promise<number[]> => {
  await using service = await startService(project, { token, args: ["--token-file", file] });
  const asked = [first, second].map(async (one) => (await service.ask("GET", "/v1/projects", { token: one })).status);
  return await Promise.all(asked);
};

it("without a terminal makes no token, and says how to make one", async () => {
  await using service = await startService(project, { token: first });
  expect(service.log()).toMatch(/there is no token.*`corral serve token create --role admin`/);
  expect(service.printed()).toBe(`http://127.0.0.1:${service.port}\n`);
  expect(JSON.parse((await project.corral(["serve", "token", "ls", "--json"])).stdout)).toEqual([]);
});

describe("corral serve --token-file", () => {
  it("takes the token of the file, prints none, and takes another one in its place", async () => {
    await written(`${first}\n`);
    expect(await statuses(first)).toEqual([200, 401]);
    expect(await statuses(first)).toEqual([200, 401]);
    await written(second);
    expect(await statuses(second)).toEqual([401, 200]);
    const { stdout } = await project.corral(["serve", "token", "ls", "--json"]);
    expect(JSON.parse(stdout)).toHaveLength(1);
  });

  it.each([
    ["that other users can read", first, 0o644, /can be read or written by other users/],
    ["whose token could be guessed", "corral_secret", 0o600, /at least 43 .*openssl rand/s],
    ["without a token", "", 0o600, /at least 43/],
  ])("refuses a file %s", async (_, text, mode, why) => {
    await written(text, mode);
    const { status, stderr } = await project.corral(["serve", "--listen", "127.0.0.1:0", "--token-file", file]);
    expect(status).toBe(2);
    expect(stderr).toMatch(why);
    expect(stderr).not.toContain(text === "" ? "corral_secret" : text);
  });
});

import { afterAll, beforeAll } from "vitest";
import type { CliProject } from "../cli/cli-project.ts";
import { servedProject } from "./served-project.ts";
import { startService, type TestService } from "./service-client.ts";

/** What `serviceForAll` opened last. */
export let project: CliProject;
export let service: TestService;

/** Starts one service over one project for all tests of a file. */
export function serviceForAll(): void {
  beforeAll(async () => {
    project = await servedProject();
    service = await startService(project);
  });
  afterAll(async () => {
    await service?.[Symbol.asyncDispose]();
    await project?.[Symbol.asyncDispose]();
  });
}

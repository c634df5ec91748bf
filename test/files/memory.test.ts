import { describe } from "vitest";
import { memoryBackend, openBackendFiles } from "../../src/files/backend/backend-files.ts";
import { contractMounts, filesContract } from "./files.contract.ts";

describe("files in memory", () => {
  filesContract(() => {
    const files = openBackendFiles(memoryBackend(), contractMounts);
    return { files, close: () => files[Symbol.dispose]() };
  });
});

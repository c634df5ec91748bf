import { describe } from "vitest";
import { contractMounts, filesContract } from "./files.contract.ts";
import { openMemoryFiles } from "./memory/memory-files.ts";

describe("files in memory", () => {
  filesContract(() => {
    const files = openMemoryFiles(contractMounts);
    return { files, close: () => files[Symbol.dispose]() };
  });
});

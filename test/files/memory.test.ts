import { describe } from "vitest";
import { openMemoryFiles } from "../../src/files/memory/memory-files.ts";
import { contractMounts, filesContract } from "./files.contract.ts";

describe("files in memory", () => {
  filesContract(() => {
    const files = openMemoryFiles(contractMounts);
    return { files, close: () => files[Symbol.dispose]() };
  });
});

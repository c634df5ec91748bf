import { appendFileTool } from "./append-file.ts";
import { callWorkerTool } from "./call-worker.ts";
import { commitChangesTool } from "./commit-changes.ts";
import { copyFileTool } from "./copy-file.ts";
import { deleteFileTool } from "./delete-file.ts";
import { editFileTool } from "./edit-file.ts";
import { execTool } from "./exec.ts";
import { fileInfoTool } from "./file-info.ts";
import { gitDiscardTool } from "./git-discard.ts";
import { gitPullTool } from "./git-pull.ts";
import { gitPushTool } from "./git-push.ts";
import { gitStageTool } from "./git-stage.ts";
import { listFilesTool } from "./list-files.ts";
import { moveFileTool } from "./move-file.ts";
import { readFileTool } from "./read-file.ts";
import type { Tool } from "./tool.ts";
import { writeFileTool } from "./write-file.ts";

/** All tools, by name. */
export const TOOLS: ReadonlyMap<string, Tool> = new Map(
  (
    [
      readFileTool,
      writeFileTool,
      editFileTool,
      appendFileTool,
      deleteFileTool,
      moveFileTool,
      copyFileTool,
      listFilesTool,
      fileInfoTool,
      commitChangesTool,
      execTool,
      callWorkerTool,
      gitPullTool,
      gitStageTool,
      gitPushTool,
      gitDiscardTool,
    ] as readonly Tool[]
  ).map((tool) => [tool.name, tool]),
);

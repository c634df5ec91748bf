import type { z } from "zod";
import type { ToolName } from "../declarations/worker/tool-names.ts";
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
import { requestAccessTool } from "./request-access.ts";
import type { Tool } from "./tool.ts";
import { writeFileTool } from "./write-file.ts";

/** Every tool. A name in `TOOL_NAMES` that has no definition here does not compile. */
const DEFINITIONS = {
  read_file: readFileTool,
  write_file: writeFileTool,
  edit_file: editFileTool,
  append_file: appendFileTool,
  delete_file: deleteFileTool,
  move_file: moveFileTool,
  copy_file: copyFileTool,
  list_files: listFilesTool,
  file_info: fileInfoTool,
  commit_changes: commitChangesTool,
  exec: execTool,
  call_worker: callWorkerTool,
  request_access: requestAccessTool,
  git_pull: gitPullTool,
  git_stage: gitStageTool,
  git_push: gitPushTool,
  git_discard: gitDiscardTool,
} as const satisfies { readonly [Name in ToolName]: Tool<z.ZodType, Name> };

export type ToolDefinitions = typeof DEFINITIONS;

/** All tools, by name. */
export const TOOLS: ReadonlyMap<string, Tool> = new Map(Object.entries(DEFINITIONS));

/**
 * Every tool's name, as `tools:` of a worker file may name it. What each does is `src/tools/`, which these names bind: a
 * tool with another name does not compile.
 */
export const TOOL_NAMES = [
  "read_file",
  "write_file",
  "edit_file",
  "append_file",
  "delete_file",
  "move_file",
  "copy_file",
  "list_files",
  "file_info",
  "commit_changes",
  "exec",
  "call_worker",
  "request_access",
  "git_pull",
  "git_stage",
  "git_push",
  "git_discard",
] as const;

export type ToolName = (typeof TOOL_NAMES)[number];

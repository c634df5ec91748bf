import { z } from "zod";
import type { ToolName } from "../declarations/worker/tool-names.ts";
import type { ListEntry } from "../files/model/files.ts";
import { DEFAULT_CHARS, MAX_CHARS } from "../files/read/read-text.ts";
import { PACKAGE_KINDS } from "../sandbox/network/rule.ts";
import { counted } from "../text/amounts.ts";
import { commitChangesTool, gitPullTool, requestAccessTool } from "./asking-tools.ts";
import type { ExecToolAnswer } from "./hands.ts";
import { agreeTo } from "./shown-effects.ts";
import { commitField, contentField, defineTool, PATH_RULE, pathField, type Tool, ToolRefusal } from "./tool.ts";

const execTool = defineTool({
  name: "exec",
  title: "Run a command",
  description:
    "Runs a command with `sh` in a container that has the same directories as the file tools. The container stays between " +
    "commands: files in /tmp and background programs remain. Several commands may run at once. A command that reaches its " +
    "time limit is killed with all that it started. Files outside the directories that `list_files` shows are lost when the worker ends. Returns the output and " +
    "the exit code. Long output is shortened; the answer then names a file with all of it.",
  input: z.strictObject({
    command: z.string().min(1).max(100_000).describe("The command line; `sh` runs it."),
    cwd: z.string().min(1).max(4096).optional().describe("The directory to run in. Default: the working directory."),
    env: z
      .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/), z.string().max(32_768))
      .optional()
      .describe("Additional environment variables, by name."),
    stdin: z.string().max(4_000_000).optional().describe("The complete standard input. Default: empty."),
    network: z
      .array(z.string().min(1).max(300))
      .max(100)
      .optional()
      .describe(
        "Only these of the hosts that the worker may reach, each as `host:port`; empty: none. Default: all of them.",
      ),
    packages: z
      .array(z.enum(PACKAGE_KINDS))
      .max(PACKAGE_KINDS.length)
      .optional()
      .describe(
        "Only these of the package registries that the worker may reach, beside the hosts of `network`; other hosts not.",
      ),
    timeout_ms: z
      .int()
      .min(1)
      .max(86_400_000)
      .optional()
      .describe("Time limit in milliseconds. Default, and at most: the worker's own limit for a command."),
  }),
  uses: "exec",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ command, cwd, env, stdin, network, packages, timeout_ms }, hands, signal) {
    const answer = await hands.exec({ command, cwd, env, stdin, network, packages, timeoutMs: timeout_ms }, signal);
    return { text: execText(answer), data: { ...answer } };
  },
});

function execText({ status, exitCode, signal, stdout, stderr, hints, cellReplaced }: ExecToolAnswer): string {
  const end = exitCode !== null ? `exit code ${exitCode}` : (signal ?? "no exit code");
  return [
    stdout,
    stderr === "" ? "" : `[standard error]\n${stderr}`,
    status === "succeeded" ? "" : `[${status}: ${end}]`,
    status === "lost" ? "[Note: the container engine failed. It is unknown if and how the command ended.]" : "",
    ...hints.map((hint) => `[Note: ${hint}]`),
    cellReplaced
      ? "[Note: the container was replaced. Files in /tmp and in the home directory and all running programs are lost.]"
      : "",
  ]
    .filter((part) => part !== "")
    .join("\n");
}

const readFileTool = defineTool({
  name: "read_file",
  title: "Read a file",
  description:
    "Reads a text file, or returns an image for you to see. Read a long file in parts: by lines with `offset` and `limit`, or " +
    "with `max_chars`. If there is more, the answer says how to continue. Other binary files cannot " +
    "be read.",
  input: z.strictObject({
    path: pathField(`The file. ${PATH_RULE}`),
    offset: z.int().min(1).optional().describe("The first line to return, counted from 1. Default: 1."),
    column: z
      .int()
      .min(1)
      .optional()
      .describe("The first character of that line to return, counted from 1. Default: 1."),
    limit: z.int().min(1).optional().describe("The maximum number of lines to return."),
    max_chars: z
      .int()
      .min(1)
      .max(MAX_CHARS)
      .optional()
      .describe(`The maximum number of characters to return. Default: ${DEFAULT_CHARS}.`),
  }),
  uses: "files",
  paths: { path: "read" },
  effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  async run({ path, offset, column, limit, max_chars }, { files }, signal) {
    const read = await files.read(path, { offset, column, limit, maxChars: max_chars, signal });
    if (read.type === "image") {
      const { mimeType, bytes } = read;
      const image = { mimeType, base64: read.content.toString("base64") };
      return { text: `Image (${mimeType}, ${bytes} bytes).`, data: { type: "image", mimeType, bytes }, image };
    }
    return { text: read.hint === null ? read.content : `${read.content}\n[${read.hint}]`, data: { ...read } };
  },
});

const attachment = z.strictObject({
  path: pathField("The file."),
  name: z.string().min(1).max(255).optional().describe("Its name in the called worker; default: its own name."),
});

const callWorkerTool = defineTool({
  name: "call_worker",
  title: "Call a worker",
  description:
    "Calls another worker and waits for its output. The called worker runs in its own container. It gets `input`, read-only " +
    "copies of the attached files, and never more access than this worker has. If it fails or is refused, the error says why.",
  input: z.strictObject({
    worker: z.string().min(1).max(256).describe("The worker's name."),
    input: z.unknown().optional().describe("The worker's input: any JSON value."),
    attachments: z
      .array(z.union([pathField("A file."), attachment]))
      .max(256)
      .default([])
      .describe("Files that the called worker may read: each a path, or a path with a new name."),
  }),
  uses: "calls",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ worker, input, attachments }, hands, signal) {
    const files = attachments.map((one) => (typeof one === "string" ? { path: one } : present(one)));
    const { status, output, error, result } = await hands.call({ worker, input, attachments: files }, signal);
    if (error !== null) throw new ToolRefusal(error.code, error.message, result);
    const text = typeof output === "string" ? output : JSON.stringify(output);
    return { text, data: { status, output, result } };
  },
});

function present({ path, name }: z.output<typeof attachment>): { path: string; name?: string } {
  return name === undefined ? { path } : { path, name };
}

/** The most of a diff that an answer shows. */
const MAX_DIFF_CHARS = 50_000;

const gitStageTool = defineTool({
  name: "git_stage",
  title: "Stage a commit",
  description:
    "Creates a commit on top of the repository's branch from files in the repository's directory, and returns its hash and " +
    "its diff. The commit stays on this machine until `git_push`. A listed file that no longer exists is deleted by the " +
    "commit. Pull files that exist in the repository with `git_pull` before you change and stage them.",
  input: z.strictObject({
    repo: z.string().min(1).max(64).describe("The repository's name in the project."),
    files: z
      .array(pathField("A file, relative to the root of the repository."))
      .min(1)
      .max(1000)
      .describe("Every file that the commit changes. Directories are not allowed."),
    message: z.string().min(1).max(10_000).describe("The commit message."),
  }),
  uses: "git",
  paths: {},
  effects: { readOnly: false, destructive: false, idempotent: false, openWorld: false },
  async run(input, hands, signal) {
    const staged = await hands.git.stage(input, signal);
    const { commit, repo, branch, files, fileCount, diff } = staged;
    const cut = diff.length > MAX_DIFF_CHARS;
    const shown = cut ? `${diff.slice(0, MAX_DIFF_CHARS)}\n[The rest of the diff is not shown.]` : diff;
    const lines = files.map(({ path, change }) => `  ${change} ${path}`);
    const more = fileCount > files.length ? [`  … and ${fileCount - files.length} more`] : [];
    const text = [`Staged ${commit} for ${branch} of ${repo}. It is not pushed.`, ...lines, ...more, "", shown];
    return { text: text.join("\n"), data: { ...staged, diff: shown } };
  },
});

const editFileTool = defineTool({
  name: "edit_file",
  title: "Edit a file",
  description:
    "Replaces exact text in a text file. Each `old` must occur exactly once in the file, unless `all` is true. Edits are " +
    "applied in order, each to the result of the one before. If one cannot be applied, the file stays unchanged and the " +
    "error names the edit.",
  input: z.strictObject({
    path: pathField(`The file. ${PATH_RULE}`),
    edits: z
      .array(
        z.strictObject({
          old: contentField("The exact text to replace, including white space, with enough context to be unique."),
          new: contentField("The replacement; an empty string deletes the text."),
          all: z.boolean().optional().describe("True: replace every occurrence. Default: false."),
        }),
      )
      .min(1)
      .max(1000)
      .describe("The replacements, applied in this order."),
  }),
  uses: "files",
  paths: { path: "write" },
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  async run({ path, edits }, hands, signal) {
    const expected = await agreeTo({ operation: "edit", path, edits }, hands, signal);
    const { bytes, replacements } = await hands.files.edit(path, edits, { expected, signal });
    const places = counted(replacements, "place");
    return { text: `Edited ${path} in ${places}.`, data: { path, bytes, replacements } };
  },
});

const RIGHTS = {
  "true-true": "readable and writable",
  "true-false": "read-only",
  "false-true": "writable, but not readable",
  "false-false": "only its name is visible",
} as const;

const fileInfoTool = defineTool({
  name: "file_info",
  title: "Get file information",
  description:
    "Returns the type of a path (file, directory, link or other), its size, the time of its last change, and if it can be " +
    "read and written.",
  input: z.strictObject({ path: pathField(`The file or directory. ${PATH_RULE}`) }),
  uses: "files",
  paths: { path: "read" },
  effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  async run({ path }, { files }) {
    const { type, size, modifiedMs, path: shown, readable, writable } = await files.inspect(path);
    const access = { readable, writable };
    const modified = new Date(modifiedMs).toISOString();
    const rights = RIGHTS[`${readable}-${writable}`];
    const bytes = size === null ? "" : `, ${size} bytes`;
    return {
      text: `${shown}: ${type}${bytes}, changed ${modified}, ${rights}.`,
      data: { path: shown, type, size, modified, ...access },
    };
  },
});

const listFilesTool = defineTool({
  name: "list_files",
  title: "List files",
  description:
    "Lists the entries of a directory. Start with `/` to see which directories exist. With a glob `pattern` such as " +
    "`**/*.md`, searches the directory and everything below it. The answer says if entries are not shown, and why.",
  input: z.strictObject({
    path: pathField("The directory. Default: the working directory.").optional(),
    pattern: z.string().min(1).max(1000).optional().describe("A glob, relative to `path`."),
    limit: z.int().min(1).max(10_000).default(1000).describe("The maximum number of entries to return."),
  }),
  uses: "files",
  paths: { path: "read" },
  effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  async run({ path, pattern, limit }, { files }, signal) {
    const listing = await files.list(path, { pattern, max: limit, signal });
    const lines = listing.entries.map(lineOf);
    const text = lines.length === 0 ? "There are no entries." : lines.join("\n");
    return { text: listing.hint === null ? text : `${text}\n[${listing.hint}]`, data: { ...listing } };
  },
});

function lineOf({ path, type, size }: ListEntry): string {
  if (type === "directory") return `${path}/`;
  return size === null ? `${path} (${type})` : `${path} (${size} bytes)`;
}

const deleteFileTool = defineTool({
  name: "delete_file",
  title: "Delete a file or directory",
  description:
    "Deletes a file, a symbolic link (never its target), or an empty directory. With `recursive`, deletes a directory and " +
    "everything in it.",
  input: z.strictObject({
    path: pathField(`The file, link or directory to delete. ${PATH_RULE}`),
    recursive: z.boolean().optional().describe("True: delete a directory with its content. Default: false."),
  }),
  uses: "files",
  paths: { path: "write" },
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ path, recursive }, hands, signal) {
    const expected = await agreeTo({ operation: "delete", path, recursive }, hands, signal);
    const deleted = await hands.files.delete(path, { recursive, expected, signal });
    return {
      text: `Deleted ${path} (${deleted.files} files, ${deleted.folders} directories).`,
      data: { path, ...deleted },
    };
  },
});

const writeFileTool = defineTool({
  name: "write_file",
  title: "Write a file",
  description:
    "Writes a text file and replaces its whole content. Creates the file and missing parent directories. To change a part of " +
    "a file use `edit_file`; to add to its end, `append_file`.",
  input: z.strictObject({
    path: pathField(`The file. ${PATH_RULE}`),
    content: contentField("The complete new content."),
    encoding: z
      .enum(["utf-8", "base64"])
      .optional()
      .describe("`base64`: `content` is bytes in Base64, for a file that is no text. Default: `utf-8`."),
    overwrite: z.boolean().optional().describe("False: fail if the file already exists. Default: true."),
  }),
  uses: "files",
  paths: { path: "write" },
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ path, content: written, encoding, overwrite }, hands, signal) {
    const content = encoding === "base64" ? bytesOf(written) : written;
    const expected = await agreeTo({ operation: "write", path, content, overwrite }, hands, signal);
    const { bytes, created } = await hands.files.write(path, content, { overwrite, expected, signal });
    return { text: `${created ? "Created" : "Replaced"} ${path} (${bytes} bytes).`, data: { path, bytes, created } };
  },
});

function bytesOf(base64: string): Buffer {
  const bytes = Buffer.from(base64, "base64");
  if (bytes.toString("base64") === base64) return bytes;
  throw new ToolRefusal("BAD_INPUT", "The input of write_file is not valid:\ncontent: is not Base64 with its padding");
}

const moveFileTool = defineTool({
  name: "move_file",
  title: "Move a file or directory",
  description:
    "Moves or renames a file, or a directory with its content. Fails if `to` exists, unless `overwrite` is true. " +
    "Creates missing parent directories of `to`.",
  input: z.strictObject({
    from: pathField(`The file or directory to move. ${PATH_RULE}`),
    to: pathField("The new path, including the new name."),
    overwrite: z.boolean().optional().describe("True: replace an existing file at `to`. Default: false."),
  }),
  uses: "files",
  paths: { from: "write", to: "write" },
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  async run({ from, to, overwrite }, hands, signal) {
    const expected = await agreeTo({ operation: "move", path: from, to, overwrite }, hands, signal);
    const moved = await hands.files.move(from, to, { overwrite, expected, signal });
    return { text: `Moved ${from} to ${to}.`, data: { from, to, ...moved } };
  },
});

const copyFileTool = defineTool({
  name: "copy_file",
  title: "Copy a file or directory",
  description:
    "Copies a file, or a directory with its content. Fails if `to` exists, unless `overwrite` is true. " +
    "Creates missing parent directories of `to`.",
  input: z.strictObject({
    from: pathField(`The file or directory to copy. ${PATH_RULE}`),
    to: pathField("The path of the copy, including its name."),
    overwrite: z.boolean().optional().describe("True: replace an existing file at `to`. Default: false."),
  }),
  uses: "files",
  paths: { from: "read", to: "write" },
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ from, to, overwrite }, hands, signal) {
    const expected = await agreeTo({ operation: "copy", path: from, to, overwrite }, hands, signal);
    const copied = await hands.files.copy(from, to, { overwrite, expected, signal });
    return { text: `Copied ${from} to ${to}.`, data: { from, to, ...copied } };
  },
});

const appendFileTool = defineTool({
  name: "append_file",
  title: "Append to a file",
  description:
    "Appends text to the end of a file and keeps its existing content. Creates the file if it does not exist. " +
    "No line break is added: begin `content` with one if the text must start on a new line.",
  input: z.strictObject({
    path: pathField(`The file. ${PATH_RULE}`),
    content: contentField("The text to append."),
  }),
  uses: "files",
  paths: { path: "write" },
  effects: { readOnly: false, destructive: false, idempotent: false, openWorld: false },
  async run({ path, content }, hands, signal) {
    const expected = await agreeTo({ operation: "append", path, content }, hands, signal);
    const { bytes, created } = await hands.files.append(path, content, { expected, signal });
    return { text: `Appended to ${path}; its size is now ${bytes} bytes.`, data: { path, bytes, created } };
  },
});

const gitPushTool = defineTool({
  name: "git_push",
  title: "Push a staged commit",
  description:
    "Pushes a commit that `git_stage` made to its repository. A person must approve every push and sees its changes first. " +
    "If approval is denied, the commit stays staged.",
  input: z.strictObject({ commit: commitField }),
  uses: "git",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ commit }, hands, signal) {
    const pushed = await hands.git.push(commit, signal);
    const { repo, branch, fileCount } = pushed;
    return { text: `Pushed ${commit} (${fileCount} files) to ${branch} of ${repo}.`, data: { ...pushed } };
  },
});

const gitDiscardTool = defineTool({
  name: "git_discard",
  title: "Discard a staged commit",
  description:
    "Discards a commit that `git_stage` made and that was not pushed. The files in the worker's directory stay unchanged.",
  input: z.strictObject({ commit: commitField }),
  uses: "git",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ commit }, hands, signal) {
    const discarded = await hands.git.discard(commit, signal);
    return { text: `Discarded ${commit}. No file was changed.`, data: { ...discarded } };
  },
});

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

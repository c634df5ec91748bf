import { join } from "node:path";
import { expect, it } from "vitest";
import { PROGRAM } from "../cli/program.ts";
import { helpExamples } from "./help-examples.ts";
import { runSteps } from "./page-session.ts";

const ROOT = join(import.meta.dirname, "../..");

/** Examples of the help that need more than an Engine and a folder, and what tries them instead. */
const ELSEWHERE: readonly (readonly [RegExp, why: string])[] = [
  [/^corral images (build|pull|rm)/, "builds and registries: test/images/"],
  [/^claude |corral mcp /, "a server does not end: test/mcp/"],
  [/^corral ci run /, "needs a repository: test/cli/ci.test.ts"],
  [/^corral run test --attach-tree/, "needs a repository: test/examples/ci.test.ts"],
  [/^corral (transcripts|grants) /, "needs an agent that runs: test/cli/agent.test.ts, test/cli/grants.test.ts"],
  [/^corral approvals /, "needs a question that waits: test/cli/approvals.test.ts"],
  [/^corral session snapshot /, "needs a session: test/cli/session.test.ts"],
  [/^corral shell /, "needs a terminal: test/cli/shell.test.ts"],
  [/^corral verify( |$)/, "takes a minute: test/operations/verify.test.ts"],
  [/^corral work( |$)/, "needs a queue, and does not end: test/fleet/elsewhere/machines.test.ts"],
  [/\/data\/paper\.pdf/, "a path outside of the home directory"],
  [/^eval /, "for bash: test/cli/completion/"],
];

/** The projects that the examples take for granted. */
const SET_UP = `
mkdir -p ~/.config/fish/completions inbox/workers papers workers fleets text
echo one > papers/a.txt
cp '${ROOT}/templates/documents/inbox/hello.pdf' ~/paper.pdf
cp ~/paper.pdf inbox/a.pdf
chmod 777 text
echo 'version: 1' | tee inbox/corral.yaml > /dev/null
cat > corral.yaml <<'END'
version: 1
sandbox: { mode: direct, zones: { inbox: { path: ./papers }, text: { path: ./text, mode: rw } } }
END
worker() { printf -- '---\\n%s\\n---\\n' "$2" > "$1"; }
worker workers/triage.worker '{ command: [cat], sandbox: { zones: [{ name: inbox }] }, shell_rules: { default: pre_approved } }'
cp workers/triage.worker workers/translate.worker
cp workers/triage.worker workers/extract.worker
worker inbox/workers/triage.worker '{ command: [cat] }'
worker workers/extract-text.worker '{ command: [cat], sandbox: { zones: [{ name: text, mode: rw, approval: pre_approved, stage: true }] } }'
echo '{"lang": "de"}' > items.jsonl
printf 'version: 1\\nworker: translate\\nmanifest: items.jsonl\\n' > fleets/nightly.yaml
`;

it("the examples of the help work as they are printed", async () => {
  const examples = (await helpExamples()).filter((line) => !ELSEWHERE.some(([pattern]) => pattern.test(line)));
  expect(examples.length).toBeGreaterThan(18);
  const unused = ELSEWHERE.filter(([pattern]) => !examples.every((line) => !pattern.test(line)));
  expect(unused).toEqual([]);
  // `init` needs a folder that has no project yet.
  const first = examples.filter((line) => line.startsWith("corral init "));
  const lines = [...first, SET_UP, ...examples.filter((line) => !first.includes(line))];
  const steps = lines.map((line) => (line === SET_UP ? line : `${line} < /dev/null`));
  const printed = await runSteps(
    steps.map((commands) => ({ commands: `${commands}\necho "exit status $?"\n`, shown: null, line: 0 })),
    PROGRAM,
  );
  const failed = lines.flatMap((line, index) => {
    const text = printed[index] ?? "";
    // Without a terminal, what a command without a project wrote waits for consent.
    const status = line.includes("--rw out") && line.startsWith("corral run ") ? 126 : 0;
    return text.trimEnd().endsWith(`exit status ${status}`) ? [] : [`${line}\n${text}`];
  });
  expect(failed).toEqual([]);
});

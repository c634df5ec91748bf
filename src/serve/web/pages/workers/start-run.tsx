import { useRef, useState } from "preact/hooks";
import type { ApiError } from "../../api/client.ts";
import type { StartedRun } from "../../api/shapes.ts";
import { useApp, useMay } from "../../app/context.ts";
import { Button } from "../../components/button.tsx";
import { ErrorNote } from "../../components/notes.tsx";
import { hrefTo } from "../../routing/page-address.ts";
import { inputOf } from "./input.ts";

/** Starts a worker with an input and files, for those who may, and goes to its run. */
export function StartRun({ project, worker }: { readonly project: string; readonly worker: string }) {
  const { client } = useApp();
  const may = useMay("run");
  const [text, setText] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  const files = useRef<HTMLInputElement>(null);
  if (!may) return null;
  const input = inputOf(text);
  const start = async (): Promise<void> => {
    const request = { project, worker, ...(input.ok && input.value !== undefined ? { input: input.value } : {}) };
    const chosen = [...(files.current?.files ?? [])];
    const form = new FormData();
    form.set("request", JSON.stringify(request));
    for (const file of chosen) form.append("file", file, file.name);
    try {
      const { run } = await client.post<StartedRun>("/v1/runs", chosen.length === 0 ? request : form);
      location.hash = hrefTo(["runs", run]);
    } catch (fault) {
      setError(fault as ApiError);
    }
  };
  return (
    <details class="start-run">
      <summary>Run it</summary>
      <label>
        Input, as JSON or as text
        <textarea
          rows={3}
          spellcheck={false}
          value={text}
          aria-invalid={!input.ok}
          aria-describedby="input-fault"
          onInput={({ currentTarget }) => setText(currentTarget.value)}
        />
      </label>
      <p id="input-fault" class="input-fault" role="status">
        {input.ok ? "" : input.fault}
      </p>
      <label>
        <span>
          Files, which it sees below <code>/attachments</code>
        </span>
        <input ref={files} type="file" multiple />
      </label>
      {error === null ? null : <ErrorNote error={error} />}
      <div class="actions">
        <Button kind="primary" disabled={!input.ok} act={start}>
          Run
        </Button>
      </div>
    </details>
  );
}

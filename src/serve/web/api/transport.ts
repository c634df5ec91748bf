import { ApiError, type ServiceTransport } from "../../../client/client.ts";

/** Asks the service that the page comes from. Files are those that a user has chosen. */
export const toOwnService: ServiceTransport = async ({ method, path, headers, json, files, signal }) => {
  const response = await fetch(path, {
    method,
    headers: { ...headers, ...(json === null || files.length > 0 ? {} : { "content-type": "application/json" }) },
    ...(json === null ? {} : { body: files.length === 0 ? json : formOf(json, files) }),
    ...(signal === undefined ? {} : { signal }),
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
  }).catch((cause: unknown) => {
    if (signal?.aborted) throw cause;
    throw unreachable(cause);
  });
  return { status: response.status, hasEnd: true, pieces: piecesOf(response, signal) };
};

function unreachable(cause: unknown): ApiError {
  return new ApiError(0, "UNREACHABLE", "The service does not answer. Is `corral serve` running?", { cause });
}

function formOf(json: string, files: Parameters<ServiceTransport>[0]["files"]): FormData {
  const form = new FormData();
  form.set("request", json);
  for (const { name, content } of files) if (content instanceof Blob) form.append("file", content, name);
  return form;
}

async function* piecesOf(response: Response, signal: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  try {
    for (;;) {
      const { value, done } = (await reader?.read()) ?? { done: true };
      if (done || value === undefined) return;
      yield value;
    }
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw unreachable(cause);
  } finally {
    // Of who reads no further: the connection is free again.
    void reader?.cancel().catch(() => {});
  }
}

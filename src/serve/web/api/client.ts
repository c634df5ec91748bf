/** An error of the service, or of the way to it (`UNREACHABLE`). */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly code: string;
  readonly violations: readonly { readonly message: string }[];

  constructor(status: number, code: string, message: string, violations: readonly { readonly message: string }[] = []) {
    super(message);
    this.status = status;
    this.code = code;
    this.violations = violations;
  }
}

/** Asks the service that the page comes from. Paths begin with `/v1/`. */
export class Client {
  readonly #token: string;
  readonly #onSignedOut: () => void;

  /** `onSignedOut`: the service does not know the token, or knows it no more. */
  constructor(token: string, onSignedOut: () => void) {
    this.#token = token;
    this.#onSignedOut = onSignedOut;
  }

  /** @throws ApiError */
  async get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return (await (await this.send("GET", path, { signal })).json()) as T;
  }

  /** `body`: JSON, or a form with files. @throws ApiError */
  async post<T>(path: string, body?: unknown): Promise<T> {
    return (await (await this.send("POST", path, { body })).json()) as T;
  }

  /** @throws ApiError */
  async remove<T>(path: string): Promise<T> {
    return (await (await this.send("DELETE", path)).json()) as T;
  }

  /** The answer as it comes, for streams. An answer that is an error throws. @throws ApiError */
  async send(
    method: string,
    path: string,
    {
      body,
      signal,
      headers = {},
    }: {
      readonly body?: unknown;
      readonly signal?: AbortSignal | undefined;
      readonly headers?: Record<string, string>;
    } = {},
  ): Promise<Response> {
    const isForm = body instanceof FormData;
    const response = await fetch(path, {
      method,
      headers: {
        authorization: `Bearer ${this.#token}`,
        ...(body === undefined || isForm ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: isForm ? body : JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
    }).catch((error: unknown) => {
      if (signal?.aborted) throw error;
      throw new ApiError(0, "UNREACHABLE", "The service does not answer. Is `corral serve` running?");
    });
    if (response.ok) return response;
    const fault = await response.json().catch(() => null);
    const {
      code = "UNKNOWN",
      message = `The service answered with ${response.status}.`,
      violations = [],
    } = fault?.error ?? {};
    if (response.status === 401) this.#onSignedOut();
    throw new ApiError(response.status, code, message, violations);
  }
}

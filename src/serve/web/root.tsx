import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { ApiError, Client } from "./api/client.ts";
import type { Caller } from "./api/shapes.ts";
import { forgetToken, keepToken, takeToken } from "./session/token.ts";
import { Shell } from "./shell.tsx";
import { SignIn } from "./sign-in.tsx";

interface SignedIn {
  readonly client: Client;
  readonly caller: Caller;
}

/** The page after its token was found to be good, and before that the form for one. */
export function Root() {
  const [token, setToken] = useState(() => takeToken(location, history, sessionStorage));
  const [signedIn, setSignedIn] = useState<SignedIn | null>(null);
  const [error, setError] = useState<string | null>(null);
  const signOut = useCallback((why: string | null) => {
    forgetToken(sessionStorage);
    setToken(null);
    setSignedIn(null);
    setError(why);
  }, []);
  const client = useMemo(
    () =>
      token === null
        ? null
        : new Client(token, () => signOut("The service does not know this token, or knows it no more.")),
    [token, signOut],
  );
  useEffect(() => {
    if (client === null) return;
    const over = new AbortController();
    client
      .get<Caller>("/v1/caller", over.signal)
      .then((caller) => setSignedIn({ client, caller }))
      .catch((fault: unknown) => {
        if (!over.signal.aborted && fault instanceof ApiError && fault.status !== 401) setError(fault.message);
      });
    return () => over.abort();
  }, [client]);
  useEffect(() => {
    // A link with another token was opened in this tab.
    const look = (): void => {
      if (!location.hash.includes("token=")) return;
      const given = takeToken(location, history, sessionStorage);
      setSignedIn(null);
      setToken(given);
    };
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  if (signedIn !== null && token !== null)
    return <Shell client={signedIn.client} caller={signedIn.caller} signOut={() => signOut(null)} />;
  if (token !== null && error === null) return <p class="loading alone">Connecting…</p>;
  const signIn = (given: string): void => {
    keepToken(given, sessionStorage);
    setError(null);
    setToken(given);
  };
  return <SignIn error={error} signIn={signIn} />;
}

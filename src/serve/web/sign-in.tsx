import { useState } from "preact/hooks";
import { tokenInFragment } from "./session/token.ts";

/** Takes a token, or the whole link that has one. */
export function SignIn({ error, signIn }: { readonly error: string | null; readonly signIn: (token: string) => void }) {
  const [text, setText] = useState("");
  const given = text.trim();
  const token = given.includes("#") ? tokenInFragment(given.slice(given.indexOf("#"))) : given;
  return (
    <main class="sign-in">
      <h1>Corral</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (token) signIn(token);
        }}
      >
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autoComplete="off"
          spellcheck={false}
          value={text}
          aria-describedby="token-error token-help"
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <p id="token-error" class="sign-in-error" role="alert">
          {error}
        </p>
        <button type="submit" class="button button-primary" disabled={!token}>
          Sign in
        </button>
      </form>
      <p id="token-help" class="quiet">
        <code>corral serve</code> prints a link with a token. <code>corral serve token create --role decide</code> makes
        a token for another user. The token stays in this tab, and is forgotten when the tab is closed.
      </p>
    </main>
  );
}

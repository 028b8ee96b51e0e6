// Listens to the server's events, for as long as the page is open: whatever ends the connection, it comes back.
// (fetch rather than EventSource, which cannot show a token.)

const FIRST_MS = 500, MOST_MS = 8000; // between two attempts
const SILENCE_MS = 5000; // the server speaks every second, so this is no connection any more

const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));

export class Refused extends Error {}

/** Calls `heard(kind, data)` for every event, `changed(state)` with "connected" or "away", `token()` for the token. */
export async function listen(url, { heard, changed, token, refused }) {
  let wait = FIRST_MS;
  for (;;) {
    try {
      await once(url, await token(), (kind, data) => {
        if (kind === "hello") { wait = FIRST_MS; changed("connected"); }
        heard(kind, data);
      });
    } catch (problem) {
      if (problem instanceof Refused) { refused(); continue; }
    }
    changed("away");
    await sleep(wait);
    wait = Math.min(2 * wait, MOST_MS);
  }
}

async function once(url, token, heard) {
  const giving = new AbortController();
  let silence = setTimeout(() => giving.abort(), SILENCE_MS);
  try {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const answer = await fetch(url, { headers, signal: giving.signal, cache: "no-store" });
    if (answer.status === 401) throw new Refused();
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parts = [];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(() => giving.abort(), SILENCE_MS);
      takeEvents(parts, value, heard);
    }
  } finally {
    clearTimeout(silence);
    giving.abort();
  }
}

/** Collects text in `parts` until an empty line ends an event. */
function takeEvents(parts, text, heard) {
  const last = parts.length ? parts[parts.length - 1] : "";
  parts.push(text);
  if (!text.includes("\n\n") && !(last.endsWith("\n") && text.startsWith("\n"))) return;
  const events = parts.join("").split("\n\n");
  parts.length = 0;
  parts.push(events.pop());
  for (const event of events) {
    const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s, 2)));
    heard(fields.event, JSON.parse(fields.data));
  }
}

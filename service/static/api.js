/** Requests to the service: with the token where one is needed, as documents or as events. */

const KEY = "cputune-token";

/** An answer that is an error: its sentence is the message. */
export class ApiError extends Error {
  constructor(status, { message, code }) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** What asks the reader for the token; main.js sets it. Resolves when one was entered. */
export const asking = { token: async () => {} };

/** Keep the token in this tab. */
export const keepToken = token => sessionStorage.setItem(KEY, token);

/** GET or, with a body, POST; resolves to the response. Throws ApiError. With `keepalive` it outlives the page. */
export async function request(path, { body, method, headers: more, signal, keepalive = false } = {}) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const headers = token === null ? { ...more } : { ...more, Authorization: `Bearer ${token}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const response = await send(path, {
      method: method ?? (body === undefined ? "GET" : "POST"),
      body: body === undefined ? undefined : JSON.stringify(body),
      headers,
      signal,
      keepalive,
      cache: "no-store",
    });
    if (response.ok) return response;
    if (response.status !== 401) throw new ApiError(response.status, await problem(response));
    await asking.token(token !== null);
  }
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "The service can't be reached: is `cputune serve` still running?" });
  }
}

async function problem(response) {
  try {
    return (await response.json()).error;
  } catch {
    return { message: `The service answered ${response.status} ${response.statusText}` };
  }
}

/** The document of a request. */
export const json = async (path, options) => (await request(path, options)).json();

/** The text of a request. */
export const text = async (path, options) => (await request(path, options)).text();

/**
 * The server-sent events of a response as they come: documents, and the text "[DONE]". `seen` is told the id of each that
 * has one. Throws ApiError of status 0 where the connection breaks.
 */
export async function* events(response, seen = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await read(reader);
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const field = name => block.split("\n").filter(line => line.startsWith(name)).map(line => line.slice(name.length)).join("\n");
        const id = field("id: ");
        if (id) seen(id);
        const data = field("data: ");
        if (data) yield data === "[DONE]" ? data : JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "The connection to the service broke off." });
  }
}

// The unmodified npm packages `openai` and `ehbp`: node ehbp.mjs BASE_URL API_KEY MODEL SECONDS
// asks for SECONDS, through key rotations, and prints what it got as one JSON object.
import OpenAI from "openai";
import { createTransport } from "ehbp";

const [base, apiKey, model, seconds] = process.argv.slice(2);
const body = { model, messages: [{ role: "user", content: "hello" }], max_tokens: 8, temperature: 0 };

let transport = null;
let staleAt = 0;
async function current() {
  if (Date.now() >= staleAt) {
    const keys = await fetch(`${base}/.well-known/hpke-keys`);
    staleAt = Date.now() + 1000 * Number(keys.headers.get("cache-control").replace("max-age=", ""));
    transport = await createTransport(base);
  }
  return transport;
}

const client = new OpenAI({
  apiKey,
  baseURL: `${base}/v1`,
  maxRetries: 0,
  fetch: async (url, init) => (await current()).request(url, init),
});

const texts = new Set();
let numRequests = 0;
const end = Date.now() + 1000 * Number(seconds);
while (Date.now() < end) {
  const whole = await client.chat.completions.create(body);
  texts.add(whole.choices[0].message.content);
  let streamed = "";
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
    streamed += chunk.choices[0]?.delta?.content ?? "";
  }
  texts.add(streamed);
  numRequests += 2;
}
let refused = null;
try {
  await client.chat.completions.create({ ...body, model: "no-such-model" });
} catch (err) {
  refused = err.code;
}
console.log(JSON.stringify({ texts: [...texts], num_requests: numRequests, refused }));

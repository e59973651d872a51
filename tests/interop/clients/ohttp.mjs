// RFC 9458, plain and chunked, on the unmodified npm package `@hpke/core`:
// node ohttp.mjs BASE_URL API_KEY MODEL SECONDS asks for SECONDS, through key rotations, with each
// AEAD of that package in turn, and prints what it got as one JSON object.
import { hkdfSync, createDecipheriv } from "node:crypto";
import { Aes128Gcm, Aes256Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "@hpke/core";

const [base, apiKey, model, seconds] = process.argv.slice(2);
const X25519 = 0x0020;
const AEADS = [
  { id: 1, keyBytes: 16, cipher: "aes-128-gcm", make: () => new Aes128Gcm() },
  { id: 2, keyBytes: 32, cipher: "aes-256-gcm", make: () => new Aes256Gcm() },
];
const text = (value) => Buffer.from(value, "latin1");
const u16 = (value) => Buffer.from([value >> 8, value & 0xff]);

function varint(value) {
  if (value < 0x40) return Buffer.from([value]);
  if (value < 0x4000) return u16(value | 0x4000);
  const out = Buffer.alloc(4);
  out.writeUInt32BE((value | 0x80000000) >>> 0);
  return out;
}
const sized = (data) => Buffer.concat([varint(data.length), data]);

/** Reads varints and sized pieces one after the other. */
class Reader {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }
  varint() {
    const length = 1 << (this.data[this.at] >> 6);
    let value = this.data[this.at] & 0x3f;
    for (let i = 1; i < length; i++) value = value * 256 + this.data[this.at + i];
    this.at += length;
    return value;
  }
  take(length) {
    this.at += length;
    return this.data.subarray(this.at - length, this.at);
  }
  sized() {
    return this.take(this.varint());
  }
  get left() {
    return this.data.length - this.at;
  }
}

/** Binary HTTP [RFC 9292]: a request of known length. */
function bhttpRequest(body) {
  const fields = [
    ["authorization", `Bearer ${apiKey}`],
    ["content-type", "application/json"],
    ["date", new Date().toUTCString()],
  ];
  const lines = fields.flatMap(([name, value]) => [sized(text(name)), sized(text(value))]);
  const control = ["POST", "https", "gateway", "/v1/chat/completions"].map((x) => sized(text(x)));
  const content = Buffer.from(JSON.stringify(body));
  return Buffer.concat([varint(0), ...control, sized(Buffer.concat(lines)), sized(content), varint(0)]);
}

/** Binary HTTP: a response of either framing. */
function parseResponse(data) {
  const reader = new Reader(data);
  const isKnown = reader.varint() === 1;
  const status = reader.varint();
  if (isKnown) {
    reader.sized();
    return { status, content: reader.sized().toString() };
  }
  while (reader.data[reader.at] !== 0) [reader.sized(), reader.sized()];
  reader.varint();
  const pieces = [];
  for (let length = reader.varint(); length; length = reader.varint()) pieces.push(reader.take(length));
  return { status, content: Buffer.concat(pieces).toString() };
}

async function x25519Key() {
  const answer = await fetch(`${base}/.well-known/ohttp-gateway`);
  const data = Buffer.from(await answer.arrayBuffer());
  for (let at = 0; at < data.length; at += 2 + data.readUInt16BE(at)) {
    if (data.readUInt16BE(at + 3) === X25519) return { id: data[at + 2], key: data.subarray(at + 5, at + 37) };
  }
  throw new Error("no X25519 key");
}

async function sealedContext(aead, label) {
  const suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: aead.make() });
  const { id, key } = await x25519Key();
  const header = Buffer.concat([Buffer.from([id]), u16(X25519), u16(1), u16(aead.id)]);
  const recipientPublicKey = await suite.kem.deserializePublicKey(key);
  const info = Buffer.concat([text(`message/bhttp ${label}request`), Buffer.from([0]), header]);
  const sender = await suite.createSenderContext({ recipientPublicKey, info });
  return { sender, head: Buffer.concat([header, Buffer.from(sender.enc)]) };
}

/** Opens chunk `index` of a response. */
async function responseOpener(aead, sender, label, nonce) {
  const secret = Buffer.from(await sender.export(text(`message/bhttp ${label}response`), nonce.length));
  const salt = Buffer.concat([Buffer.from(sender.enc), nonce]);
  const key = Buffer.from(hkdfSync("sha256", secret, salt, "key", aead.keyBytes));
  const iv = Buffer.from(hkdfSync("sha256", secret, salt, "nonce", 12));
  return (index, aad, sealed) => {
    const counted = Buffer.from(iv);
    counted.writeUInt32BE((counted.readUInt32BE(8) ^ index) >>> 0, 8);
    const opener = createDecipheriv(aead.cipher, key, counted);
    opener.setAAD(aad);
    opener.setAuthTag(sealed.subarray(sealed.length - 16));
    return Buffer.concat([opener.update(sealed.subarray(0, sealed.length - 16)), opener.final()]);
  };
}

async function post(body, mediaType) {
  const answer = await fetch(`${base}/ohttp`, { method: "POST", body, headers: { "content-type": mediaType } });
  if (answer.status !== 200) throw new Error(`outer status ${answer.status}: ${await answer.text()}`);
  return Buffer.from(await answer.arrayBuffer());
}

async function askPlain(aead, body) {
  const { sender, head } = await sealedContext(aead, "");
  const sealed = Buffer.from(await sender.seal(bhttpRequest(body)));
  const answer = await post(Buffer.concat([head, sealed]), "message/ohttp-req");
  const nonceBytes = Math.max(12, aead.keyBytes);
  const open = await responseOpener(aead, sender, "", answer.subarray(0, nonceBytes));
  return parseResponse(open(0, text(""), answer.subarray(nonceBytes)));
}

async function askChunked(aead, body) {
  const { sender, head } = await sealedContext(aead, "chunked ");
  const message = bhttpRequest(body);
  const half = message.length >> 1;
  const first = Buffer.from(await sender.seal(message.subarray(0, half)));
  const last = Buffer.from(await sender.seal(message.subarray(half), text("final")));
  const answer = await post(Buffer.concat([head, sized(first), varint(0), last]), "message/ohttp-chunked-req");
  const reader = new Reader(answer);
  const open = await responseOpener(aead, sender, "chunked ", reader.take(Math.max(12, aead.keyBytes)));
  const pieces = [];
  for (let length = reader.varint(); length; length = reader.varint()) {
    pieces.push(open(pieces.length, text(""), reader.take(length)));
  }
  pieces.push(open(pieces.length, text("final"), reader.take(reader.left)));
  return parseResponse(Buffer.concat(pieces));
}

function streamedText(content) {
  const events = content.split("\n\n").filter((event) => event.startsWith("data: "));
  if (events.pop() !== "data: [DONE]") throw new Error("the stream did not end");
  return events.map((event) => JSON.parse(event.slice(6)).choices[0]?.delta?.content ?? "").join("");
}

const body = { model, messages: [{ role: "user", content: "hello" }], max_tokens: 8, temperature: 0 };
const texts = new Set();
let numRequests = 0;
const end = Date.now() + 1000 * Number(seconds);
while (Date.now() < end) {
  for (const aead of AEADS) {
    for (const ask of [askPlain, askChunked]) {
      const whole = await ask(aead, body);
      texts.add(JSON.parse(whole.content).choices[0].message.content);
      texts.add(streamedText((await ask(aead, { ...body, stream: true })).content));
      numRequests += 2;
    }
  }
}
const error = await askChunked(AEADS[0], { ...body, model: "no-such-model" });
if (error.status !== 404) throw new Error(`status ${error.status}`);
console.log(JSON.stringify({ texts: [...texts], num_requests: numRequests, refused: JSON.parse(error.content).error.code }));

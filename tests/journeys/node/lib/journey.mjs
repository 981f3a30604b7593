// Shared by all scripts: their input, page visits by the test's user, and a record of the metadata fields used.
//
// The test writes JSON lines to stdin and reads them from stdout. A script asks the user to visit a URL and
// waits for the result; its last line contains its results and the metadata fields it used.
import { webcrypto } from 'node:crypto'
import { createInterface } from 'node:readline'

// Node 18 exports it under another name.
globalThis.crypto ??= webcrypto
globalThis.CryptoKey ??= webcrypto.CryptoKey

process.on('warning', (warning) => {
  // Ignore warnings about experimental features of Node.js itself.
  if (warning.name !== 'ExperimentalWarning') throw warning
})

export const given = JSON.parse(process.env.JOURNEY)

const reader = createInterface({ input: process.stdin })
const answers = reader[Symbol.asyncIterator]()
const asked = new Set()
const read = new Set()
const documents = []

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`)
const withoutQuery = (url) => String(url).split('?')[0]

const realFetch = globalThis.fetch
globalThis.fetch = (url, options) => {
  asked.add(withoutQuery(url.url ?? url))
  return realFetch(url, options)
}

/** Ask the test to do something and return its result. */
export async function ask(question) {
  say(question)
  return JSON.parse((await answers.next()).value)
}

/** Let the user visit the URL, sign in and consent. Returns `{left}`, `{action, fields}` of a form, or `{shown}`. */
export async function visit(url) {
  asked.add(withoutQuery(url))
  return ask({ visit: String(url) })
}

/** Return the redirect URL that the user was sent to. */
export async function comeBack(url) {
  const { left, ...other } = await visit(url)
  if (left === undefined) throw new Error(`the user was not redirected: ${JSON.stringify(other)}`)
  return new URL(left)
}

/** Return the metadata in a proxy that records which fields are read. */
export function learn(metadata) {
  documents.push(metadata)
  return new Proxy(metadata, {
    get(target, name) {
      read.add(name)
      return target[name]
    },
  })
}

/** End the script. An endpoint counts as used when it was called, any other field when it was read. */
export function finish(found = {}) {
  const used = documents.flatMap((metadata) => Object.keys(metadata).filter((name) => {
    const value = metadata[name]
    return typeof value === 'string' && name !== 'issuer' ? asked.has(value) : read.has(name)
  }))
  say({ found, used })
  reader.close()
}

// What every script here shares: what it was given, the person who walks to pages for it, and a note of what it used.
//
// The test writes JSON lines to stdin and reads them from stdout. A script asks the person to visit an address and
// waits for where that led; its last line says what it found and which metadata fields it made use of.
import { webcrypto } from 'node:crypto'
import { createInterface } from 'node:readline'

// Node 18 has it, under another name.
globalThis.crypto ??= webcrypto
globalThis.CryptoKey ??= webcrypto.CryptoKey

process.on('warning', (warning) => {
  // Node's own parts that it calls experimental are no matter of the service's.
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

/** Asks the test for something that only it can do. */
export async function ask(question) {
  say(question)
  return JSON.parse((await answers.next()).value)
}

/** The person goes there, signs in and allows what is asked: `{left}`, `{action, fields}` of a form, or `{shown}`. */
export async function visit(url) {
  asked.add(withoutQuery(url))
  return ask({ visit: String(url) })
}

/** The address to which the person was sent back. */
export async function comeBack(url) {
  const { left, ...other } = await visit(url)
  if (left === undefined) throw new Error(`nobody was sent back: ${JSON.stringify(other)}`)
  return new URL(left)
}

/** The metadata, which notes what is read of it. */
export function learn(metadata) {
  documents.push(metadata)
  return new Proxy(metadata, {
    get(target, name) {
      read.add(name)
      return target[name]
    },
  })
}

/** The script is over. An endpoint was used when it was asked, any other field when it was read. */
export function finish(found = {}) {
  const used = documents.flatMap((metadata) => Object.keys(metadata).filter((name) => {
    const value = metadata[name]
    return typeof value === 'string' && name !== 'issuer' ? asked.has(value) : read.has(name)
  }))
  say({ found, used })
  reader.close()
}

// Shared by all scripts: their input, and page visits by the test's user.
//
// The test writes JSON lines to stdin and reads them from stdout. A script asks the user to visit a URL and
// waits for the result; its last line contains its results.
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

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`)

/** Ask the test to do something and return its result. */
export async function ask(question) {
  say(question)
  return JSON.parse((await answers.next()).value)
}

/** Let the user visit the URL, sign in and consent. Returns `{left}`, `{action, fields}` of a form, or `{shown}`. */
export async function visit(url) {
  return ask({ visit: String(url) })
}

/** Return the redirect URL that the user was sent to. */
export async function comeBack(url) {
  const { left, ...other } = await visit(url)
  if (left === undefined) throw new Error(`the user was not redirected: ${JSON.stringify(other)}`)
  return new URL(left)
}

/** End the script. */
export function finish(found = {}) {
  say({ found })
  reader.close()
}

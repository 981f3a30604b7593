// Every prompt value, as openid-client sends it.
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { comeBack, finish, visit } from './lib/journey.mjs'
import { configured, request } from './lib/keys.mjs'

const config = await configured()
const server = config.serverMetadata()
assert.deepEqual([...server.prompt_values_supported].sort(), ['consent', 'create', 'login', 'none', 'select_account'])

async function claimsWith(changes) {
  const { parameters, checks } = await request(changes)
  const back = await comeBack(client.buildAuthorizationUrl(config, parameters))
  const tokens = await client.authorizationCodeGrant(config, back, checks)
  return [tokens.claims(), tokens.id_token]
}

const shown = async (prompt) => visit(client.buildAuthorizationUrl(config, (await request({ prompt })).parameters))

await assert.rejects(claimsWith({ prompt: 'none' }), { error: 'login_required' })
assert.match((await shown('create')).text, /id="register-submit"/)
const [first, hint] = await claimsWith({})
const [silent] = await claimsWith({ prompt: 'none', id_token_hint: hint })
assert.deepEqual([silent.sub, silent.auth_time, silent.sid], [first.sub, first.auth_time, first.sid])
assert.match((await shown('select_account')).text, /id="account-continue"/)
await claimsWith({ prompt: 'consent' })
const [again] = await claimsWith({ prompt: 'login' })
assert.equal(again.sub, first.sub)
assert.ok(again.auth_time > first.auth_time)
finish()

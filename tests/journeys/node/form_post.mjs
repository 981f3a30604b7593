// Answers by form post, errors too, as openid-client reads them from the request that its server gets.
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { finish, learn, visit } from './lib/journey.mjs'
import { configured, request } from './lib/keys.mjs'

const config = await configured()
const server = learn(config.serverMetadata())
assert.ok(server.response_modes_supported.includes('form_post'))

/** The request that the browser makes of the client's server when it sends the form. */
async function posted(url) {
  const { action, fields } = await visit(url)
  return new Request(action, { method: 'POST', body: new URLSearchParams(fields) })
}

const silent = await request({ response_mode: 'form_post', prompt: 'none' })
const refused = await posted(client.buildAuthorizationUrl(config, silent.parameters))
await assert.rejects(client.authorizationCodeGrant(config, refused, silent.checks), { error: 'login_required' })

const { parameters, checks } = await request({ response_mode: 'form_post' })
const answer = await posted(client.buildAuthorizationUrl(config, parameters))
const tokens = await client.authorizationCodeGrant(config, answer, checks)
await client.fetchUserInfo(config, tokens.access_token, tokens.claims().sub)
finish()

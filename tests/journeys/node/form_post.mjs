// Responses and errors by form post, which openid-client parses from the request that its server receives.
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { finish, visit } from './lib/journey.mjs'
import { configured, request } from './lib/keys.mjs'

const config = await configured()
const server = config.serverMetadata()
assert.ok(server.response_modes_supported.includes('form_post'))

/** Return the request that the browser sends to the client's server with the form. */
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

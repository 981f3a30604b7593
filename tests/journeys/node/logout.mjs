// RP-initiated logout with a redirect, and back-channel logout, whose token jose verifies.
import assert from 'node:assert/strict'
import { createRemoteJWKSet, jwtVerify } from 'jose'
import * as client from 'openid-client'
import { ask, comeBack, finish, given } from './lib/journey.mjs'
import { configured, request } from './lib/keys.mjs'

const EVENT = 'http://schemas.openid.net/event/backchannel-logout'
const config = await configured()
const server = config.serverMetadata()
assert.ok(server.backchannel_logout_supported && server.backchannel_logout_session_supported)
const { parameters, checks } = await request()
const back = await comeBack(client.buildAuthorizationUrl(config, parameters))
const tokens = await client.authorizationCodeGrant(config, back, checks)
const claims = tokens.claims()

const state = client.randomState()
const left = await comeBack(client.buildEndSessionUrl(config, {
  id_token_hint: tokens.id_token,
  post_logout_redirect_uri: given.post_logout_redirect_uri,
  state,
}))
assert.equal(left.href, `${given.post_logout_redirect_uri}?state=${state}`)

const { body } = await ask({ posted: given.backchannel_path })
const form = new URLSearchParams(body)
assert.deepEqual([...form.keys()], ['logout_token'])
const { payload } = await jwtVerify(form.get('logout_token'), createRemoteJWKSet(new URL(server.jwks_uri)), {
  issuer: given.issuer,
  audience: given.client_id,
  typ: 'logout+jwt',
  algorithms: ['RS256'],
  maxTokenAge: '2 minutes',
  requiredClaims: ['exp', 'jti', 'events'],
})
assert.deepEqual(payload.events, { [EVENT]: {} })
assert.deepEqual([payload.sub, payload.sid], [claims.sub, claims.sid])
assert.equal('nonce' in payload, false)
finish()

// A client that registers itself with openid-client (RFC 7591), gets tokens, and manages itself (RFC 7592).
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { comeBack, finish, given } from './lib/journey.mjs'
import { request } from './lib/keys.mjs'

const issuer = new URL(given.issuer)
const metadata = {
  client_name: 'Weather Bot',
  redirect_uris: [given.redirect_uri],
  grant_types: ['authorization_code', 'refresh_token'],
  token_endpoint_auth_method: 'client_secret_basic',
  id_token_signed_response_alg: 'ES256',
}
const register = (initialAccessToken, changes = {}) => client.dynamicClientRegistration(
  issuer, { ...metadata, ...changes }, client.ClientSecretBasic(), { initialAccessToken },
)
await assert.rejects(register(undefined))
await assert.rejects(register(given.initial_access_token, { redirect_uris: ['https://orchard.example/#'] }), {
  error: 'invalid_redirect_uri',
})
const config = await register(given.initial_access_token)
client.enableNonRepudiationChecks(config)
const own = config.clientMetadata()
assert.equal(own.client_secret_expires_at, 0)

const { parameters, checks } = await request()
const back = await comeBack(client.buildAuthorizationUrl(config, parameters))
const tokens = await client.authorizationCodeGrant(config, back, checks)
await client.fetchUserInfo(config, tokens.access_token, tokens.claims().sub)
await client.refreshTokenGrant(config, tokens.refresh_token)

const manage = (method, body) => fetch(own.registration_client_uri, {
  method,
  headers: { authorization: `Bearer ${own.registration_access_token}`, 'content-type': 'application/json' },
  body: body && JSON.stringify(body),
})
assert.equal((await (await manage('GET')).json()).client_name, metadata.client_name)
const changed = await manage('PUT', { ...metadata, client_id: own.client_id, client_name: 'Storm Bot' })
assert.deepEqual([changed.status, (await changed.json()).client_name], [200, 'Storm Bot'])
assert.equal((await manage('DELETE')).status, 204)
assert.equal((await manage('GET')).status, 401)
finish()

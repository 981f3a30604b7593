// The code flow of openid-client, from discovery to revocation.
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { comeBack, finish, given } from './lib/journey.mjs'
import { configured, request } from './lib/keys.mjs'

const config = await configured()
const server = config.serverMetadata()
assert.equal(server.issuer, given.issuer)
assert.ok(server.supportsPKCE('S256') && server.code_challenge_methods_supported.includes('S256'))
assert.ok(server.authorization_response_iss_parameter_supported && server.claims_parameter_supported)
assert.ok(server.response_types_supported.includes('code') && server.response_modes_supported.includes('query'))
assert.ok(server.token_endpoint_auth_methods_supported.includes(given.method))
assert.ok(server.revocation_endpoint_auth_methods_supported.includes(given.method))
assert.ok(server.id_token_signing_alg_values_supported.includes(given.algorithm))
assert.ok(['authorization_code', 'refresh_token'].every((name) => server.grant_types_supported.includes(name)))
if (given.method === 'private_key_jwt') {
  for (const endpoint of ['token', 'introspection', 'revocation']) {
    assert.ok(server[`${endpoint}_endpoint_auth_signing_alg_values_supported`].includes(given.key.alg))
  }
}
if (given.client_id.startsWith('https:')) assert.equal(server.client_id_metadata_document_supported, true)

const acr = server.acr_values_supported[0]
const wanted = { userinfo: { email: { essential: true }, name: null }, id_token: { email_verified: null } }
assert.deepEqual(server.claim_types_supported, ['normal'])
assert.ok(Object.values(wanted).flatMap(Object.keys).every((name) => server.claims_supported.includes(name)))
const { parameters, checks } = await request({
  acr_values: acr,
  claims: JSON.stringify(wanted),
  display: server.display_values_supported[0],
  login_hint: given.email,
  max_age: '600',
  ui_locales: server.ui_locales_supported[0],
})
assert.ok(parameters.scope.split(' ').every((name) => server.scopes_supported.includes(name)))

const back = await comeBack(client.buildAuthorizationUrl(config, parameters))
assert.equal(back.searchParams.get('iss'), given.issuer)
const tokens = await client.authorizationCodeGrant(config, back, { ...checks, maxAge: 600 })
const claims = tokens.claims()
assert.equal(claims.acr, acr)
assert.equal(claims.email_verified, true)
assert.equal(typeof claims.sid, 'string')
assert.equal(tokens.expiresIn() > 0, true)

const user = await client.fetchUserInfo(config, tokens.access_token, claims.sub)
assert.equal(user.email, given.email)
assert.equal(user.name, 'Ada Lovelace')
const byForm = await client.fetchProtectedResource(
  config, tokens.access_token, new URL(server.userinfo_endpoint), 'POST',
)
assert.equal(byForm.status, 200)

const next = await client.refreshTokenGrant(config, tokens.refresh_token)
assert.notEqual(next.refresh_token, tokens.refresh_token)
if (given.method !== 'none') {
  assert.ok(server.introspection_endpoint_auth_methods_supported.includes(given.method))
  const told = await client.tokenIntrospection(config, next.access_token)
  assert.deepEqual([told.active, told.sub, told.client_id], [true, claims.sub, given.client_id])
}
await client.tokenRevocation(config, next.refresh_token, { token_type_hint: 'refresh_token' })
await assert.rejects(client.refreshTokenGrant(config, next.refresh_token), { error: 'invalid_grant' })
await assert.rejects(client.fetchUserInfo(config, next.access_token, claims.sub), (error) => {
  assert.equal(error.cause[0].parameters.error, 'invalid_token')
  return true
})
finish({ sub: claims.sub })

// An API that exchanges a received token for one of another API (RFC 8693, 8707), and introspects it.
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { comeBack, finish, given } from './lib/journey.mjs'
import { configured, request } from './lib/keys.mjs'

const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange'
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token'
const { first, second, service } = given

const config = await configured()
const server = config.serverMetadata()
assert.ok(server.grant_types_supported.includes(EXCHANGE))
const { parameters, checks } = await request({ scope: `openid ${first.scope} ${second.scope} offline_access` })
const url = client.buildAuthorizationUrl(config, parameters)
for (const resource of [first.identifier, second.identifier]) url.searchParams.append('resource', resource)
const both = await client.authorizationCodeGrant(config, await comeBack(url), checks)
const sent = await client.refreshTokenGrant(config, both.refresh_token)
const narrow = await client.refreshTokenGrant(config, sent.refresh_token, { resource: first.identifier })
assert.equal(narrow.scope.split(' ').includes(second.scope), false)

const api = new client.Configuration(
  config.serverMetadata(), service.client_id,
  { introspection_signed_response_alg: 'ES256' }, client.ClientSecretBasic(service.client_secret),
)
client.enableNonRepudiationChecks(api)
const asked = { subject_token: sent.access_token, subject_token_type: ACCESS_TOKEN }
const exchanged = await client.genericGrantRequest(api, EXCHANGE, { ...asked, resource: second.identifier })
assert.deepEqual([exchanged.issued_token_type, exchanged.scope], [ACCESS_TOKEN, second.scope])

// The response is a JWT (RFC 9701), which openid-client verifies.
assert.ok(server.introspection_signing_alg_values_supported.includes('ES256'))
const told = await client.tokenIntrospection(api, exchanged.access_token)
assert.deepEqual(
  [told.active, told.sub, told.act, told.aud],
  [true, both.claims().sub, { sub: service.client_id }, second.identifier],
)
await assert.rejects(
  client.genericGrantRequest(api, EXCHANGE, { ...asked, resource: 'https://nowhere.example' }),
  { error: 'invalid_target' },
)
await client.tokenRevocation(config, narrow.refresh_token)
assert.deepEqual(await client.tokenIntrospection(api, exchanged.access_token), { active: false })
finish()

// A machine client of oauth4webapi: client_credentials, introspection in both forms, revocation.
import assert from 'node:assert/strict'
import * as oauth from 'oauth4webapi'
import { finish, given } from './lib/journey.mjs'

const issuer = new URL(given.issuer)
const server = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer))
assert.ok(server.grant_types_supported.includes('client_credentials'))
const client = { client_id: given.client_id }
const authentication = oauth.ClientSecretBasic(given.client_secret)

const asked = async (parameters) => oauth.processClientCredentialsResponse(
  server, client, await oauth.clientCredentialsGrantRequest(server, client, authentication, parameters),
)
const tokens = await asked({ scope: given.scope, resource: given.resource })
assert.equal(tokens.refresh_token, undefined)
await assert.rejects(asked({ scope: 'openid' }), { error: 'invalid_scope' })
await assert.rejects(asked({ resource: 'https://nowhere.example' }), { error: 'invalid_target' })

const told = async (requestJwtResponse) => {
  const response = await oauth.introspectionRequest(
    server, client, authentication, tokens.access_token, { requestJwtResponse },
  )
  const answer = await oauth.processIntrospectionResponse(server, client, response)
  if (requestJwtResponse) await oauth.validateApplicationLevelSignature(server, response)
  return answer
}
const plain = await told(false)
assert.deepEqual(
  [plain.active, plain.client_id, plain.scope, plain.aud],
  [true, given.client_id, given.scope, given.resource],
)
assert.deepEqual(await told(true), plain)
assert.ok(server.introspection_signing_alg_values_supported.includes('RS256'))
const gone = await oauth.revocationRequest(server, client, authentication, tokens.access_token)
assert.equal(await oauth.processRevocationResponse(gone), undefined)
assert.deepEqual(await told(false), { active: false })
finish()

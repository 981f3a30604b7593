// Signed requests (RFC 9101), at the authorization endpoint and pushed, of a client that must sign its requests.
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { comeBack, finish, given } from './lib/journey.mjs'
import { configured, request, signingKey } from './lib/keys.mjs'

const config = await configured({ request_object_signing_alg: given.key.alg })
const server = config.serverMetadata()
assert.equal(server.request_parameter_supported, true)
assert.ok(server.request_object_signing_alg_values_supported.includes(given.key.alg))
assert.ok(!server.request_object_signing_alg_values_supported.includes('none'))
assert.deepEqual([server.request_uri_parameter_supported, server.require_request_uri_registration], [false, false])

const ways = [
  (signed) => signed,
  (signed) => client.buildAuthorizationUrlWithPAR(config, signed.searchParams),
]
for (const way of ways) {
  const { parameters, checks } = await request()
  const signed = await client.buildAuthorizationUrlWithJAR(config, parameters, await signingKey())
  assert.equal(signed.searchParams.has('state'), false)
  const tokens = await client.authorizationCodeGrant(config, await comeBack(await way(signed)), checks)
  await client.fetchUserInfo(config, tokens.access_token, tokens.claims().sub)
}

const { parameters, checks } = await request()
for (const [changes, error] of [
  [{}, 'invalid_request'],
  [{ request_uri: 'https://orchard.example/request.jwt' }, 'request_uri_not_supported'],
]) {
  const back = await comeBack(client.buildAuthorizationUrl(config, { ...parameters, ...changes }))
  await assert.rejects(client.authorizationCodeGrant(config, back, checks), { error })
}
finish()

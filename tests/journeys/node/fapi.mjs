// A FAPI 2.0 client of oauth4webapi: pushed requests, private_key_jwt, DPoP with the server's nonces, and an API that
// verifies JWT access tokens.
import assert from 'node:assert/strict'
import * as oauth from 'oauth4webapi'
import { comeBack, finish, given } from './lib/journey.mjs'
import { signingKey } from './lib/keys.mjs'

const issuer = new URL(given.issuer)
const found = await oauth.discoveryRequest(issuer, { algorithm: 'oauth2' })
const server = await oauth.processDiscoveryResponse(issuer, found)
assert.equal(server.require_pushed_authorization_requests, given.organization_demands)
assert.ok(server.token_endpoint_auth_methods_supported.includes('private_key_jwt'))
assert.ok(server.token_endpoint_auth_signing_alg_values_supported.includes(given.key.alg))
assert.ok(server.dpop_signing_alg_values_supported.includes(given.proof_algorithm))

const client = { client_id: given.client_id, id_token_signed_response_alg: given.algorithm }
const proof = await oauth.generateKeyPair(given.proof_algorithm)
const authentication = oauth.PrivateKeyJwt(await signingKey())
let challenges = 0

/** Return the server's response; retry if it asks for a nonce, which a new handle does not have. */
async function answered(DPoP, ask) {
  try {
    return await ask({ DPoP })
  } catch (error) {
    if (!oauth.isDPoPNonceError(error)) throw error
    challenges += 1
    return ask({ DPoP })
  }
}

const DPoP = oauth.DPoP(client, proof)
const verifier = oauth.generateRandomCodeVerifier()
const state = oauth.generateRandomState()
const nonce = oauth.generateRandomNonce()
const parameters = {
  response_type: 'code',
  redirect_uri: given.redirect_uri,
  scope: `openid offline_access ${given.scope}`,
  resource: given.resource,
  code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
  code_challenge_method: 'S256',
  state,
  nonce,
}
const pushed = await answered(DPoP, async (options) => oauth.processPushedAuthorizationResponse(
  server, client,
  await oauth.pushedAuthorizationRequest(server, client, authentication, parameters, options),
))

const open = new URL(server.authorization_endpoint)
open.search = new URLSearchParams({ client_id: client.client_id, ...parameters })
const refused = await comeBack(open)
assert.throws(() => oauth.validateAuthResponse(server, client, refused, state), { error: 'invalid_request' })

const url = new URL(server.authorization_endpoint)
url.search = new URLSearchParams({ client_id: client.client_id, request_uri: pushed.request_uri })
const answer = oauth.validateAuthResponse(server, client, await comeBack(url), state)
let response
const tokens = await answered(oauth.DPoP(client, proof), async (options) => {
  response = await oauth.authorizationCodeGrantRequest(
    server, client, authentication, answer, given.redirect_uri, verifier, options,
  )
  return oauth.processAuthorizationCodeResponse(server, client, response, {
    expectedNonce: nonce, requireIdToken: true,
  })
})
await oauth.validateApplicationLevelSignature(server, response)
assert.equal(tokens.token_type, 'dpop')
assert.ok(challenges >= 2)

// The client's API verifies tokens offline: it has the keys and its own identifier.
const api = async (address, options) => Response.json(await oauth.validateJwtAccessToken(
  server, new Request(address, options), given.resource, { requireDPoP: true },
))
const called = await oauth.protectedResourceRequest(
  tokens.access_token, 'GET', new URL(given.resource), undefined, null, { DPoP, [oauth.customFetch]: api },
)
const claims = await called.json()
assert.deepEqual([claims.client_id, claims.scope.split(' ').includes(given.scope)], [given.client_id, true])

const again = await answered(DPoP, async (options) => oauth.processRefreshTokenResponse(
  server, client,
  await oauth.refreshTokenGrantRequest(server, client, authentication, tokens.refresh_token, options),
))
assert.equal(again.refresh_token ?? tokens.refresh_token, tokens.refresh_token)

const { sub } = oauth.getValidatedIdTokenClaims(tokens)
const user = await answered(DPoP, async (options) => oauth.processUserInfoResponse(
  server, client, sub, await oauth.userInfoRequest(server, client, again.access_token, options),
))
assert.equal(user.sub, sub)
await assert.rejects(
  async () => oauth.processUserInfoResponse(
    server, client, sub, await oauth.userInfoRequest(server, client, again.access_token),
  ),
  (error) => {
    assert.deepEqual([error.cause[0].scheme, error.cause[0].parameters.error], ['bearer', 'invalid_token'])
    return true
  },
)
finish()

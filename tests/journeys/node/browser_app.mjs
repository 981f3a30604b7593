// A public client of openid-client whose code and tokens are bound to its key (RFC 9449).
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { comeBack, finish, given } from './lib/journey.mjs'
import { configured, request } from './lib/keys.mjs'

const config = await configured()
const server = config.serverMetadata()
assert.ok(server.dpop_signing_alg_values_supported.includes(given.proof_algorithm))
const DPoP = client.getDPoPHandle(config, await client.randomDPoPKeyPair(given.proof_algorithm))
const other = client.getDPoPHandle(config, await client.randomDPoPKeyPair(given.proof_algorithm))

const { parameters, checks } = await request({ dpop_jkt: await DPoP.calculateThumbprint() })
const back = await comeBack(client.buildAuthorizationUrl(config, parameters))
const tokens = await client.authorizationCodeGrant(config, back, checks, undefined, { DPoP })
assert.equal(tokens.token_type, 'dpop')
const { sub } = tokens.claims()
await client.fetchUserInfo(config, tokens.access_token, sub, { DPoP })

for (const [proof, scheme] of [[{ DPoP: other }, 'dpop'], [{}, 'bearer']]) {
  await assert.rejects(client.fetchUserInfo(config, tokens.access_token, sub, proof), (error) => {
    assert.deepEqual([error.cause[0].scheme, error.cause[0].parameters.error], [scheme, 'invalid_token'])
    // A request without a proof is rejected with a hint to send one.
    assert.ok(error.cause.some((challenge) => challenge.scheme === 'dpop' && challenge.parameters.algs))
    return true
  })
}
const next = await client.refreshTokenGrant(config, tokens.refresh_token, undefined, { DPoP })
assert.notEqual(next.refresh_token, tokens.refresh_token)
await assert.rejects(client.refreshTokenGrant(config, next.refresh_token, undefined, { DPoP: other }), {
  error: 'invalid_grant',
})
const third = await client.refreshTokenGrant(config, next.refresh_token, undefined, { DPoP })
await client.tokenRevocation(config, third.refresh_token)
await assert.rejects(client.fetchUserInfo(config, third.access_token, sub, { DPoP }))
finish()

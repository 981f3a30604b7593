// A FAPI 2.0 client of openid-client, which retries with nonces automatically; fapi.mjs does so by hand.
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { comeBack, finish, given } from './lib/journey.mjs'
import { configured, request } from './lib/keys.mjs'

const config = await configured()
const DPoP = client.getDPoPHandle(config, await client.randomDPoPKeyPair(given.proof_algorithm))
const { parameters, checks } = await request({ scope: `openid offline_access ${given.scope}`, resource: given.resource })
const url = await client.buildAuthorizationUrlWithPAR(config, parameters, { DPoP })
assert.deepEqual([...url.searchParams.keys()].sort(), ['client_id', 'request_uri'])
const tokens = await client.authorizationCodeGrant(config, await comeBack(url), checks, undefined, { DPoP })
assert.equal(tokens.token_type, 'dpop')
await client.fetchUserInfo(config, tokens.access_token, tokens.claims().sub, { DPoP })
const again = await client.refreshTokenGrant(config, tokens.refresh_token, undefined, { DPoP })
assert.equal(again.refresh_token ?? tokens.refresh_token, tokens.refresh_token)
await client.tokenRevocation(config, tokens.refresh_token)
await assert.rejects(client.refreshTokenGrant(config, tokens.refresh_token, undefined, { DPoP }), {
  error: 'invalid_grant',
})
finish()

// Signed userinfo and subject identifiers, public or pairwise.
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { comeBack, finish, given } from './lib/journey.mjs'
import { configured, request } from './lib/keys.mjs'

const config = await configured({ userinfo_signed_response_alg: given.userinfo_algorithm })
const server = config.serverMetadata()
assert.ok(server.subject_types_supported.includes(given.subject_type))
assert.ok(server.userinfo_signing_alg_values_supported.includes(given.userinfo_algorithm))
const { parameters, checks } = await request()
const back = await comeBack(client.buildAuthorizationUrl(config, parameters))
const tokens = await client.authorizationCodeGrant(config, back, checks)
// openid-client accepts only a signed response here, and verifies it.
const user = await client.fetchUserInfo(config, tokens.access_token, tokens.claims().sub)
finish({ sub: user.sub })

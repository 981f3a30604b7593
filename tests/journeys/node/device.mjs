// A device of openid-client that waits for the user's approval (RFC 8628).
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import { finish, visit } from './lib/journey.mjs'
import { configured } from './lib/keys.mjs'

const config = await configured()
const server = config.serverMetadata()
assert.ok(server.grant_types_supported.includes('urn:ietf:params:oauth:grant-type:device_code'))
const asked = await client.initiateDeviceAuthorization(config, { scope: 'openid profile email offline_access' })
assert.ok(asked.user_code && asked.verification_uri.startsWith('https:'))
const [tokens, last] = await Promise.all([
  client.pollDeviceAuthorizationGrant(config, asked),
  visit(asked.verification_uri_complete),
])
assert.match(last.text, /id="device-allowed"/)
const user = await client.fetchUserInfo(config, tokens.access_token, tokens.claims().sub)
const next = await client.refreshTokenGrant(config, tokens.refresh_token)
await client.tokenRevocation(config, next.refresh_token)
finish({ sub: user.sub })

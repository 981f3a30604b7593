// Metadata at the well-known URLs of the organization and the instance, as both libraries request it.
import assert from 'node:assert/strict'
import * as client from 'openid-client'
import * as oauth from 'oauth4webapi'
import { finish, given } from './lib/journey.mjs'

const plain = (metadata) => JSON.parse(JSON.stringify(metadata))
for (const issuer of [given.issuer, given.root].map((address) => new URL(address))) {
  const documents = []
  for (const algorithm of ['oidc', 'oauth2']) {
    const response = await oauth.discoveryRequest(issuer, { algorithm })
    documents.push(plain(await oauth.processDiscoveryResponse(issuer, response)))
    const config = await client.discovery(issuer, 'nobody', undefined, client.None(), { algorithm })
    documents.push(plain(config.serverMetadata()))
  }
  for (const document of documents) assert.deepEqual(document, documents[0])
}

// The management API names its authorization server and its metadata URL (RFC 9728).
const resource = new URL(`${given.root}/management`)
const told = await oauth.processResourceDiscoveryResponse(resource, await oauth.resourceDiscoveryRequest(resource))
assert.ok(told.authorization_servers.includes(given.root))
const refused = await fetch(`${given.root}/clients`)
assert.equal(refused.status, 401)
assert.ok(refused.headers.get('www-authenticate').includes(
  `resource_metadata="${given.root}/.well-known/oauth-protected-resource/management"`,
))
finish()

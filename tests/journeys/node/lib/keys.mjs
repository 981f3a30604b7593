// Keys and ways to authenticate, as the test chose them.
import * as client from 'openid-client'
import { importJWK } from 'jose'
import { given } from './journey.mjs'

/** The client's own signing key, whose public half is registered. */
export async function signingKey() {
  return { key: await importJWK(given.key, given.key.alg), kid: given.key.kid }
}

/** How the client authenticates, by its registered method. */
export async function authentication() {
  switch (given.method) {
    case 'client_secret_basic':
      return client.ClientSecretBasic(given.client_secret)
    case 'client_secret_post':
      return client.ClientSecretPost(given.client_secret)
    case 'private_key_jwt':
      return client.PrivateKeyJwt(await signingKey())
    case 'none':
      return client.None()
  }
  throw new Error(`unknown method ${given.method}`)
}

/** What openid-client knows of server and client; each signature is checked, those that came by TLS too. */
export async function configured(metadata = {}, options = {}) {
  const known = { id_token_signed_response_alg: given.algorithm ?? 'RS256', ...metadata }
  const config = await client.discovery(
    new URL(given.issuer), given.client_id, known, await authentication(), options,
  )
  client.enableNonRepudiationChecks(config)
  return config
}

/** The parameters of an ordinary request, and the checks that its answer has to pass. */
export async function request(changes = {}) {
  const pkceCodeVerifier = client.randomPKCECodeVerifier()
  const expectedState = client.randomState()
  const expectedNonce = client.randomNonce()
  const parameters = {
    redirect_uri: given.redirect_uri,
    scope: 'openid profile email offline_access',
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
    code_challenge_method: 'S256',
    state: expectedState,
    nonce: expectedNonce,
    ...changes,
  }
  return { parameters, checks: { pkceCodeVerifier, expectedState, expectedNonce, idTokenExpected: true } }
}

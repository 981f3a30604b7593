// openid-client: https://github.com/panva/openid-client#quick-start.
import { createServer } from 'node:http'
import * as client from 'openid-client'

const { CLIENT_ID, CLIENT_SECRET, ISSUER, PORT } = process.env
const here = `http://localhost:${PORT}`
const redirect_uri = `${here}/callback`
const scope = 'openid profile email offline_access'
const config = await client.discovery(new URL(ISSUER), CLIENT_ID, CLIENT_SECRET)
const session = {} // this application has one user

async function login() {
  session.code_verifier = client.randomPKCECodeVerifier()
  const code_challenge = await client.calculatePKCECodeChallenge(session.code_verifier)
  const parameters = { redirect_uri, scope, code_challenge, code_challenge_method: 'S256' }
  if (!config.serverMetadata().supportsPKCE()) {
    session.state = client.randomState()
    parameters.state = session.state
  }
  return client.buildAuthorizationUrl(config, parameters)
}

async function callback(currentUrl) {
  session.tokens = await client.authorizationCodeGrant(config, currentUrl, {
    pkceCodeVerifier: session.code_verifier,
    expectedState: session.state,
  })
  session.claims = session.tokens.claims()
  session.id_token = session.tokens.id_token
  return new URL('/profile', here)
}

async function profile() {
  return client.fetchUserInfo(config, session.tokens.access_token, session.claims.sub)
}

async function refresh() {
  session.tokens = await client.refreshTokenGrant(config, session.tokens.refresh_token)
  return profile()
}

async function logout() {
  const { id_token } = session
  for (const name of Object.keys(session)) delete session[name]
  return client.buildEndSessionUrl(config, {
    post_logout_redirect_uri: `${here}/signed-out`,
    id_token_hint: id_token,
  })
}

const pages = {
  '/login': login, '/callback': callback, '/profile': profile, '/refresh': refresh, '/logout': logout,
  '/signed-out': async () => 'signed out',
}
createServer(async (request, response) => {
  const currentUrl = new URL(request.url, here)
  try {
    const result = await pages[currentUrl.pathname](currentUrl)
    if (result instanceof URL) response.writeHead(302, { Location: result.href }).end()
    else response.end(JSON.stringify(result))
  } catch (error) {
    response.writeHead(500).end(`${error.stack} ${JSON.stringify(error.cause)}`)
  }
}).listen(PORT)

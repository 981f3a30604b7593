// Auth.js: https://authjs.dev/reference/core, /guides/configuring-oauth-providers and /guides/refresh-token-rotation.
import { createServer } from 'node:http'
import { Readable } from 'node:stream'
import { Auth } from '@auth/core'
import { getToken } from '@auth/core/jwt'

const { CLIENT_ID, CLIENT_SECRET, ISSUER, PORT } = process.env
const here = `http://localhost:${PORT}`
const secret = 'the-secret-of-this-application'
let hoursPassed = 0

const config = {
  basePath: '/auth',
  secret,
  trustHost: true,
  providers: [
    {
      id: 'gatehouse',
      name: 'Gatehouse',
      type: 'oidc',
      issuer: ISSUER,
      clientId: CLIENT_ID,
      clientSecret: CLIENT_SECRET,
      authorization: { params: { scope: 'openid profile email offline_access' } },
    },
  ],
  callbacks: {
    async jwt({ token, account }) {
      if (account) {
        const { access_token, expires_at, id_token, refresh_token } = account
        return { ...token, access_token, expires_at, id_token, refresh_token }
      }
      if (Date.now() / 1000 + hoursPassed * 3600 < token.expires_at) return token
      const response = await fetch(`${ISSUER}/oauth/token`, {
        method: 'POST',
        body: new URLSearchParams({
          client_id: CLIENT_ID,
          client_secret: CLIENT_SECRET,
          grant_type: 'refresh_token',
          refresh_token: token.refresh_token,
        }),
      })
      const tokens = await response.json()
      if (!response.ok) throw tokens
      return {
        ...token,
        access_token: tokens.access_token,
        expires_at: Math.floor(Date.now() / 1000 + hoursPassed * 3600 + tokens.expires_in),
        refresh_token: tokens.refresh_token,
      }
    },
    async session({ session, token }) {
      const headers = { Authorization: `Bearer ${token.access_token}` }
      session.userinfo = await (await fetch(`${ISSUER}/oauth/userinfo`, { headers })).json()
      return session
    },
  },
}

/** Pages of the application itself. */
async function respond(request) {
  const { pathname } = new URL(request.url)
  if (pathname === '/') return Response.redirect(`${here}/auth/session`)
  if (pathname === '/refresh') {
    hoursPassed += 2
    return Response.redirect(`${here}/auth/session`)
  }
  if (pathname === '/logout') {
    // Auth.js ends its own session. The session at the provider ends first.
    const { id_token } = await getToken({ req: request, secret, salt: 'authjs.session-token' })
    const parameters = { id_token_hint: id_token, post_logout_redirect_uri: `${here}/auth/signout` }
    return Response.redirect(`${ISSUER}/oauth/logout?${new URLSearchParams(parameters)}`)
  }
  return Auth(request, config)
}

createServer(async (message, reply) => {
  const { method, headers } = message
  const body = method === 'POST' ? Readable.toWeb(message) : undefined
  const response = await respond(new Request(`${here}${message.url}`, { method, headers, body, duplex: 'half' }))
  reply.writeHead(response.status, {
    ...Object.fromEntries(response.headers),
    // Node.js of Debian 12 has no getSetCookie.
    'set-cookie': response.headers.getSetCookie?.() ?? response.headers.get('set-cookie')?.split(/, (?=[^;,]+=)/) ?? [],
  })
  reply.end(await response.text())
}).listen(PORT)

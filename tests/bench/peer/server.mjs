// node-oidc-provider with an adapter for MariaDB, in as many processes as the service has workers.
//
// The table has an index for each look-up of the adapter, and every write is committed durably. Users sign in and
// consent without a page, so that the benchmark can fill a browser's cookies.
import cluster from 'node:cluster'
import { createHash } from 'node:crypto'
import mysql from 'mysql2/promise'
import { Provider } from 'oidc-provider'

const settings = JSON.parse(process.env.PEER)

if (cluster.isPrimary) {
  for (let worker = 0; worker < settings.workers; worker += 1) cluster.fork()
  process.on('SIGTERM', () => process.exit(0))
} else {
  const pool = mysql.createPool({ ...settings.database, connectionLimit: settings.connections })

  class Adapter {
    constructor(model) { this.model = model }

    async upsert(id, payload, seconds) {
      const values = [
        this.model, id, JSON.stringify(payload), payload.grantId ?? null, payload.uid ?? null,
        seconds ? Math.floor(Date.now() / 1000) + seconds : null,
      ]
      await pool.execute(
        `INSERT INTO models (model, id, payload, grant_id, uid, expires_at) VALUES (?, ?, ?, ?, ?, ?)
         ON DUPLICATE KEY UPDATE payload = VALUES(payload), grant_id = VALUES(grant_id), uid = VALUES(uid),
         expires_at = VALUES(expires_at)`, values)
    }

    async first(sql, values) {
      const [[row]] = await pool.execute(sql, values)
      if (row === undefined || (row.expires_at !== null && row.expires_at * 1000 < Date.now())) return undefined
      return { ...JSON.parse(row.payload), ...(row.consumed_at ? { consumed: row.consumed_at } : undefined) }
    }

    find(id) {
      return this.first('SELECT * FROM models WHERE model = ? AND id = ?', [this.model, id])
    }

    findByUid(uid) {
      return this.first('SELECT * FROM models WHERE model = ? AND uid = ?', [this.model, uid])
    }

    async findByUserCode() { return undefined }

    async consume(id) {
      await pool.execute('UPDATE models SET consumed_at = UNIX_TIMESTAMP() WHERE model = ? AND id = ?',
        [this.model, id])
    }

    async destroy(id) {
      await pool.execute('DELETE FROM models WHERE model = ? AND id = ?', [this.model, id])
    }

    async revokeByGrantId(grantId) {
      await pool.execute('DELETE FROM models WHERE grant_id = ?', [grantId])
    }
  }

  const provider = new Provider(settings.issuer, {
    adapter: Adapter,
    clients: settings.clients,
    jwks: settings.jwks,
    cookies: { keys: ['a key of the benchmark'] },
    claims: { openid: ['sub'], profile: ['name', 'updated_at'], email: ['email', 'email_verified'] },
    conformIdTokenClaims: false,
    scopes: ['openid', 'offline_access', 'profile', 'email', 'clients:read'],
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      introspection: { enabled: true },
      revocation: { enabled: true },
    },
    rotateRefreshToken: true,
    // It drops offline_access without prompt=consent.
    issueRefreshToken: async (ctx, client) => client.grantTypeAllowed('refresh_token'),
    interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
    findAccount: async (ctx, id) => ({
      accountId: id,
      claims: async () => ({ sub: id, name: 'Ada', updated_at: 1, email: `${id}@example.com`, email_verified: true }),
    }),
    routes: {
      authorization: '/oauth/authorize', token: '/oauth/token', introspection: '/oauth/introspect',
      revocation: '/oauth/revoke', userinfo: '/oauth/userinfo', jwks: '/oauth/jwks',
    },
  })
  provider.proxy = true

  provider.use(async (ctx, next) => {
    if (!ctx.path.startsWith('/interaction/')) return next()
    const { prompt, params, session } = await provider.interactionDetails(ctx.req, ctx.res)
    if (prompt.name === 'login') {
      const accountId = createHash('sha256').update(ctx.path).digest('hex').slice(0, 20)
      return provider.interactionFinished(ctx.req, ctx.res, { login: { accountId } })
    }
    const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id })
    grant.addOIDCScope(params.scope)
    const grantId = await grant.save()
    return provider.interactionFinished(ctx.req, ctx.res, { consent: { grantId } })
  })
  provider.listen(settings.port, '127.0.0.1')
}

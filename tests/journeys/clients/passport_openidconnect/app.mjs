// passport-openidconnect: https://www.passportjs.org/packages/passport-openidconnect/.
import express from 'express'
import session from 'express-session'
import passport from 'passport'
import OpenIDConnectStrategy from 'passport-openidconnect'

const { CLIENT_ID, CLIENT_SECRET, ISSUER, PORT } = process.env

passport.use(new OpenIDConnectStrategy(
  {
    issuer: ISSUER,
    authorizationURL: `${ISSUER}/oauth/authorize`,
    tokenURL: `${ISSUER}/oauth/token`,
    userInfoURL: `${ISSUER}/oauth/userinfo`,
    clientID: CLIENT_ID,
    clientSecret: CLIENT_SECRET,
    callbackURL: '/oauth2/redirect',
    scope: ['profile', 'email', 'offline_access'],
  },
  function verify(issuer, userinfo, idProfile, context, idToken, accessToken, refreshToken, params, cb) {
    return cb(null, { userinfo: userinfo._json, idToken, refreshToken })
  },
))
passport.serializeUser((user, cb) => cb(null, user))
passport.deserializeUser((user, cb) => cb(null, user))

const app = express()
app.use(session({ secret: 'keyboard cat', resave: false, saveUninitialized: false }))
app.use(passport.authenticate('session'))

app.get('/login', passport.authenticate('openidconnect'))
app.get('/oauth2/redirect', passport.authenticate('openidconnect', {
  successRedirect: '/profile',
  failWithError: true,
}))
app.get('/profile', (req, res) => res.json(req.user.userinfo))

// Passport leaves refreshing and signing out at the provider to the application.
app.get('/refresh', async (req, res) => {
  const form = { grant_type: 'refresh_token', refresh_token: req.user.refreshToken }
  const credentials = { client_id: CLIENT_ID, client_secret: CLIENT_SECRET }
  const body = new URLSearchParams({ ...form, ...credentials })
  const tokens = await (await fetch(`${ISSUER}/oauth/token`, { method: 'POST', body })).json()
  const headers = { Authorization: `Bearer ${tokens.access_token}` }
  res.json(await (await fetch(`${ISSUER}/oauth/userinfo`, { headers })).json())
})
app.get('/logout', (req, res, next) => {
  const parameters = {
    id_token_hint: req.user.idToken,
    post_logout_redirect_uri: `http://localhost:${PORT}/signed-out`,
  }
  req.logout((error) => {
    if (error) return next(error)
    return res.redirect(`${ISSUER}/oauth/logout?${new URLSearchParams(parameters)}`)
  })
})
app.get('/signed-out', (req, res) => res.send('signed out'))
app.listen(PORT)

// The registry host answers, and its challenge names the token endpoint.
const { REALM } = process.env

const root = await call('/v2/')
check('without a token it refuses', root.status === 401, root.status)
const challenge = root.headers['www-authenticate'] ?? ''
check(`tokens are at ${REALM}`, challenge.includes(`realm="${REALM}"`), challenge)

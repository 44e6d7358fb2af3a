// The API answers under its name, and accepts the token of the release's operator.
const { BASE_URL, ISSUER, TOKEN_FILE } = process.env

const discovery = JSON.parse((await call('/.well-known/openid-configuration')).text)
check(`its issuer is ${BASE_URL}`, discovery.issuer === BASE_URL, discovery.issuer)

const anonymous = await call('/iam/v2/groups')
check('without a token it refuses', anonymous.status === 401, anonymous.status)

const token = readFileSync(TOKEN_FILE, 'utf8').trim()
const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
const groups = await call('/iam/v2/groups?page_size=1', { headers })
const { iss } = JSON.parse(Buffer.from(token.split('.')[1], 'base64url').toString())
const isUnknown = groups.status !== 200 && groups.text.includes('the issuer is unknown')
const advice = ISSUER ? `kubernetes.issuer is ${ISSUER}: set it to ${iss}, or leave it empty, and upgrade the release` : 'restart the pods of the release'
check(`the issuer of this cluster's tokens is known: ${iss}`, !isUnknown, advice)
check("with the operator's token it lists groups", groups.status === 200, groups.text)

const body = JSON.stringify({ name: 'helm-test', description: 'never made' })
const dryRun = await call('/iam/v2/groups?validateOnly=true', { method: 'POST', headers, body })
// An existing group of that name is not an error of the installation.
check('it would make a root group', dryRun.status === 200 || dryRun.status === 409, dryRun.text)

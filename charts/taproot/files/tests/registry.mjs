// The registry host answers, and says where its tokens are.
const { REGISTRY, REALM } = process.env
const check = (what, isTrue, found) => {
  console.log(`${isTrue ? 'ok  ' : 'FAIL'} ${what}${isTrue ? '' : `: ${found}`}`)
  if (!isTrue) process.exitCode = 1
}

const root = await fetch(`${REGISTRY}/v2/`, { signal: AbortSignal.timeout(20_000) })
check('without a token it refuses', root.status === 401, root.status)
const challenge = root.headers.get('www-authenticate') ?? ''
check(`tokens are at ${REALM}`, challenge.includes(`realm="${REALM}"`), challenge)

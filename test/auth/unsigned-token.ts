/** Returns an unsigned JWT with these claims, a subject and an expiry, for code that reads claims without checking a signature. */
export function tokenWithClaims(claims: object): string {
  return [{ alg: 'RS256' }, { sub: 'system:serviceaccount:default:default', exp: 4_000_000_000, ...claims }, {}]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.')
}

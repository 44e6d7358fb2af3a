import type { RawAnswer, RawRoute } from '../transport/http/raw-route.ts'
import type { DevIssuer } from '../auth/oidc/dev-issuer.ts'
import { jwksDocument, platformDiscovery } from '../auth/oidc/discovery-document.ts'
import type { SigningKeys } from '../auth/keys/signing-keys.ts'

/** A public document; clients may keep it for a moment, keys are published hours before they are used. */
function json(document: unknown): Promise<RawAnswer> {
  return Promise.resolve({
    status: 200,
    headers: { 'Content-Type': 'application/json', 'Cache-Control': 'public, max-age=300' },
    body: JSON.stringify(document),
  })
}

/** Routes beside the API methods: discovery and keys of our issuer, and in role `dev` of the development issuer. */
export function documentRoutes(options: { baseUrl: string; signingKeys: SigningKeys; devIssuer: DevIssuer | undefined }): RawRoute[] {
  const { baseUrl, signingKeys, devIssuer } = options
  const routes: RawRoute[] = [
    { method: 'GET', path: '/.well-known/openid-configuration', handler: () => json(platformDiscovery(baseUrl)) },
    { method: 'GET', path: '/.well-known/jwks.json', handler: () => json(jwksDocument(signingKeys.keySet())) },
  ]
  if (devIssuer === undefined) return routes
  return [
    ...routes,
    { method: 'GET', path: '/dev/issuer/.well-known/openid-configuration', handler: () => json(devIssuer.discovery) },
    { method: 'GET', path: '/dev/issuer/jwks.json', handler: () => json(jwksDocument(devIssuer.keySet)) },
  ]
}

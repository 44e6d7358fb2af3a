import { jsonAnswer } from '../transport/web/web-answers.ts'
import type { WebRoute } from '../transport/web/web-routes.ts'
import type { DevIssuer } from '../auth/oidc/dev-issuer.ts'
import { jwksDocument, platformDiscovery } from '../auth/oidc/discovery-document.ts'
import type { KeySet } from '../auth/keys/key-set.ts'

/** Returns the route of a public document. Clients may cache it for five minutes, since keys are published hours before they are used. */
function documentRoute(path: string, document: () => unknown): WebRoute {
  return { method: 'GET', path, handle: () => jsonAnswer(200, document(), { 'Cache-Control': 'public, max-age=300' }) }
}

/** Returns the routes of discovery and key documents: for the platform's issuer, and in role `dev` also for the development issuer. */
export function documentRoutes(options: { baseUrl: string; keys: readonly { keySet(): KeySet }[]; devIssuer: DevIssuer | undefined }): WebRoute[] {
  const { baseUrl, keys, devIssuer } = options
  const routes = [
    documentRoute('/.well-known/openid-configuration', () => platformDiscovery(baseUrl)),
    documentRoute('/.well-known/jwks.json', () => jwksDocument(...keys.map((some) => some.keySet()))),
  ]
  if (devIssuer === undefined) return routes
  return [
    ...routes,
    documentRoute('/dev/issuer/.well-known/openid-configuration', () => devIssuer.discovery),
    documentRoute('/dev/issuer/jwks.json', () => jwksDocument(devIssuer.keySet)),
  ]
}

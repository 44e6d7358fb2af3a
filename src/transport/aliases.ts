import type { HttpBinding, MethodRow } from '../base/schema/method.ts'

/** Package prefixes of public clients of this API family, under which the services are also served. The setting `compat.namespaces` overrides them. */
export const defaultNamespaces = ['chainguard.platform'] as const

/** Domains whose v1 packages keep the version in their alias; all others drop it (docs/spec/conventions.md#versions). */
const versionedV1Domains: ReadonlySet<string> = new Set(['vulnerabilities'])

/** Domains that the API family does not have. */
const ownDomains: ReadonlySet<string> = new Set(['audit'])

/**
 * Returns the other full names of a Taproot service below `namespaces`, e.g. `taproot.iam.v2.GroupsService` -> `<ns>.iam.v2.GroupsService` and
 * `<ns>.iam.v2beta1.GroupsService`, `taproot.auth.v1.Auth` -> `<ns>.auth.Auth`. Empty for other services, and for domains of Taproot only.
 */
export function serviceAliases(service: string, namespaces: readonly string[]): string[] {
  const match = /^taproot\.([a-z_]+)\.(v1|v2)\.([A-Za-z0-9_]+)$/.exec(service)
  if (match === null) return []
  const [, domain = '', version = '', name = ''] = match
  if (ownDomains.has(domain)) return []
  const packages = version === 'v2' ? [`${domain}.v2`, `${domain}.v2beta1`] : [versionedV1Domains.has(domain) ? `${domain}.v1` : domain]
  return namespaces.flatMap((namespace) => packages.map((suffix) => `${namespace}.${suffix}.${name}`))
}

/** Returns every gRPC path of a method, Taproot's own first: `/taproot.iam.v2.GroupsService/GetGroup`. */
export function grpcPaths(row: MethodRow, namespaces: readonly string[]): string[] {
  return [row.service, ...serviceAliases(row.service, namespaces)].map((service) => `/${service}/${row.rpc}`)
}

/** Returns the REST routes of a method. With `preview`, also returns them under the earlier path segment `/v2beta1/` (docs/spec/conventions.md#versions). */
export function httpBindings(row: MethodRow, preview: boolean): HttpBinding[] {
  if (!preview || ownDomains.has(row.domain)) return [...row.http]
  return row.http.flatMap((binding) => {
    const template = binding.template.replace(/^\/([a-z_]+)\/v2\//, '/$1/v2beta1/')
    return template === binding.template ? [binding] : [binding, { ...binding, template }]
  })
}

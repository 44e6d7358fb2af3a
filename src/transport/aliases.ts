import type { HttpBinding, MethodRow } from '../base/schema/method.ts'

/** The namespaces of public clients of this API family, served in addition to Taproot's own. `compat.namespaces` overrides them. */
export const defaultNamespaces = ['chainguard.platform'] as const

/** v1 packages whose name keeps the version; all others drop it (docs/spec/conventions.md#versions). */
const versionedV1Domains: ReadonlySet<string> = new Set(['vulnerabilities'])

/**
 * Returns the other full names of a Taproot service under `namespaces`, e.g. `taproot.iam.v2.GroupsService` -> `<ns>.iam.v2.GroupsService` and
 * `<ns>.iam.v2beta1.GroupsService`, `taproot.auth.v1.Auth` -> `<ns>.auth.Auth`. Empty for foreign services.
 */
export function serviceAliases(service: string, namespaces: readonly string[]): string[] {
  const match = /^taproot\.([a-z_]+)\.(v1|v2)\.([A-Za-z0-9_]+)$/.exec(service)
  if (match === null) return []
  const [, domain = '', version = '', name = ''] = match
  const packages = version === 'v2' ? [`${domain}.v2`, `${domain}.v2beta1`] : [versionedV1Domains.has(domain) ? `${domain}.v1` : domain]
  return namespaces.flatMap((namespace) => packages.map((suffix) => `${namespace}.${suffix}.${name}`))
}

/** Returns every full method path of a row, Taproot's own first: `/taproot.iam.v2.GroupsService/GetGroup`. */
export function grpcPaths(row: MethodRow, namespaces: readonly string[]): string[] {
  return [row.service, ...serviceAliases(row.service, namespaces)].map((service) => `/${service}/${row.rpc}`)
}

/** Returns the row's REST bindings; with `preview` also those under the earlier segment `/v2beta1/` (docs/spec/conventions.md#versions). */
export function httpBindings(row: MethodRow, preview: boolean): HttpBinding[] {
  if (!preview) return [...row.http]
  return row.http.flatMap((binding) => {
    const template = binding.template.replace(/^\/([a-z_]+)\/v2\//, '/$1/v2beta1/')
    return template === binding.template ? [binding] : [binding, { ...binding, template }]
  })
}

import { isRepositoryName } from '../records/repo-paths.ts'
import type { RegistryAction } from '../gate.ts'
import { RegistryError } from '../registry-error.ts'
import { isRegistryAction } from './registry-claims.ts'

/** A repository and the actions that a client requests for it. */
export interface RepositoryScope {
  readonly path: string
  /** In a fixed order, without duplicates. Empty if the request has only unknown actions. */
  readonly actions: readonly RegistryAction[]
}

/** The actions, in the order in which scopes list them. */
const order: readonly RegistryAction[] = ['pull', 'push', 'delete']

/** Maximum number of scopes in one request. */
const maxScopes = 100

const typePattern = /^[a-z0-9]+(?:\([a-z0-9]+\))?$/
const actionPattern = /^(?:[a-z]+|\*)$/

function malformed(): RegistryError {
  return new RegistryError('UNSUPPORTED', 'a scope must be `repository:<organization>/<image>:<action>,...`', { status: 400 })
}

/** Throws NAME_INVALID (400) for a name with only one component. It has no organisation, so it never names a repository. */
export function assertInOrganization(name: string): void {
  if (!name.includes('/')) throw new RegistryError('NAME_INVALID', 'a repository is `<organization>/<image>`: the name lacks the organization')
}

/** The scope for `_catalog`, as in other registries. */
export const catalogScope = 'registry:catalog:*'

/** The scopes of a token request. */
export interface AskedScopes {
  readonly repositories: readonly RepositoryScope[]
  /** True if the request asks for access to `_catalog`. */
  readonly catalog: boolean
  /** True if the request has any scope, even an unsupported one. */
  readonly asked: boolean
}

/**
 * Parses the `scope` parameters of a token request (distribution token protocol). Each may hold several scopes, separated by spaces.
 * Scopes of other types are accepted and grant nothing. `*` means every action. Scopes of one repository are merged. Throws RegistryError
 * with status 400 if a scope is malformed.
 */
export function parseScopes(parameters: readonly string[]): AskedScopes {
  const scopes = parameters.flatMap((parameter) => parameter.split(' ')).filter((scope) => scope !== '')
  if (scopes.length > maxScopes) throw malformed()
  const byPath = new Map<string, Set<RegistryAction>>()
  let catalog = false
  for (const scope of scopes) {
    const { type, name, actions } = parseScope(scope)
    if (scope === catalogScope) catalog = true
    if (type !== 'repository') continue
    const asked = byPath.get(name) ?? new Set()
    byPath.set(name, asked)
    for (const action of actions) for (const one of action === '*' ? order : [action]) if (isRegistryAction(one)) asked.add(one)
  }
  const repositories = [...byPath].map(([path, asked]) => ({ path, actions: order.filter((action) => asked.has(action)) }))
  return { repositories, catalog, asked: scopes.length > 0 }
}

function parseScope(scope: string): { type: string; name: string; actions: readonly string[] } {
  const first = scope.indexOf(':')
  const last = scope.lastIndexOf(':')
  if (first < 0 || first === last) throw malformed()
  const type = scope.slice(0, first)
  const name = scope.slice(first + 1, last)
  const actions = scope.slice(last + 1).split(',')
  if (!typePattern.test(type) || !actions.every((action) => actionPattern.test(action))) throw malformed()
  if (type === 'repository' ? !isRepositoryName(name) : name === '' || name.length > 255) throw malformed()
  if (type === 'repository') assertInOrganization(name)
  return { type, name, actions }
}

/** Formats a scope as text. */
export function formatScope(scope: RepositoryScope | typeof catalogScope): string {
  if (scope === catalogScope) return scope
  const { path, actions } = scope
  return `repository:${path}:${order.filter((action) => actions.includes(action)).join(',')}`
}

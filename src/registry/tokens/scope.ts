import { isRepositoryName } from '../records/repo-paths.ts'
import type { RegistryAction } from '../gate.ts'
import { RegistryError } from '../registry-error.ts'
import { isRegistryAction } from './registry-claims.ts'

/** What a client asks to do with one repository. */
export interface RepositoryScope {
  readonly path: string
  /** In a fixed order, each once; none where all that is asked for is unknown. */
  readonly actions: readonly RegistryAction[]
}

/** The actions, in the order in which scopes name them. */
const order: readonly RegistryAction[] = ['pull', 'push', 'delete']

/** Scopes that one request may name. */
const maxScopes = 100

const typePattern = /^[a-z0-9]+(?:\([a-z0-9]+\))?$/
const actionPattern = /^(?:[a-z]+|\*)$/

function malformed(): RegistryError {
  return new RegistryError('UNSUPPORTED', 'a scope must be `repository:<organization>/<image>:<action>,...`', { status: 400 })
}

/** Throws NAME_INVALID (400) for a name of one component: no organisation, so nothing can ever be there. */
export function assertInOrganization(name: string): void {
  if (!name.includes('/')) throw new RegistryError('NAME_INVALID', 'a repository is `<organization>/<image>`: the name lacks the organization')
}

/** The scope of `_catalog`, as other registries name it. */
export const catalogScope = 'registry:catalog:*'

/** What a token request asks for. */
export interface AskedScopes {
  readonly repositories: readonly RepositoryScope[]
  /** Whether the token is to list repositories. */
  readonly catalog: boolean
  /** Whether anything was asked for. */
  readonly asked: boolean
}

/**
 * Reads the `scope` parameters of a token request (distribution token protocol): each may hold several scopes, separated by spaces. Scopes of other types are well-formed
 * and ask for nothing that is given here. `*` is every action. Scopes of one repository are merged. Throws RegistryError with status 400 for a malformed one.
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

/** The text of a scope. */
export function formatScope(scope: RepositoryScope | typeof catalogScope): string {
  if (scope === catalogScope) return scope
  const { path, actions } = scope
  return `repository:${path}:${order.filter((action) => actions.includes(action)).join(',')}`
}

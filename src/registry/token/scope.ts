import { isRepositoryName } from '../../resources/registry/repo-paths.ts'
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

/**
 * Reads the `scope` parameters of a token request (distribution token protocol): each may hold several scopes, separated by spaces. Scopes of other types are well-formed
 * and ask for nothing that is given here. `*` is every action. Scopes of one repository are merged. Throws RegistryError with status 400 for a malformed one.
 */
export function parseScopes(parameters: readonly string[]): { readonly repositories: readonly RepositoryScope[]; readonly asked: boolean } {
  const scopes = parameters.flatMap((parameter) => parameter.split(' ')).filter((scope) => scope !== '')
  if (scopes.length > maxScopes) throw malformed()
  const byPath = new Map<string, Set<RegistryAction>>()
  for (const scope of scopes) {
    const { type, name, actions } = parseScope(scope)
    if (type !== 'repository') continue
    const asked = byPath.get(name) ?? new Set()
    byPath.set(name, asked)
    for (const action of actions) for (const one of action === '*' ? order : [action]) if (isRegistryAction(one)) asked.add(one)
  }
  const repositories = [...byPath].map(([path, asked]) => ({ path, actions: order.filter((action) => asked.has(action)) }))
  return { repositories, asked: scopes.length > 0 }
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

/** The scope that names these actions on a repository. */
export function formatScope({ path, actions }: RepositoryScope): string {
  return `repository:${path}:${order.filter((action) => actions.includes(action)).join(',')}`
}

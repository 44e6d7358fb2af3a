import { join } from 'node:path'
import { requirePart } from '../../../support/parts/require-part.ts'
import { run } from '../harness/command.ts'
import type { ContainerMount, ContainerSpec } from './container.ts'

const root = join(import.meta.dirname, '..', '..', '..', '..')

/** A service of a Compose file. */
export interface ComposedService {
  readonly container: ContainerSpec
  /** The command of its health check, if it has one. */
  readonly healthcheck: readonly string[] | undefined
}

/** The keys of a service that `containerOf` reads. Others are refused, so that no test passes without them. */
interface ServiceKeys {
  readonly image: string
  readonly command: readonly string[] | null
  readonly environment?: Readonly<Record<string, string>>
  readonly ports?: readonly { readonly host_ip?: string; readonly published: string; readonly target: number }[]
  readonly volumes?: readonly { readonly type: string; readonly source: string; readonly target: string; readonly read_only?: boolean }[]
  readonly secrets?: readonly { readonly source: string; readonly target: string }[]
  readonly read_only?: boolean
  readonly cap_drop?: readonly string[]
  readonly security_opt?: readonly string[]
  readonly healthcheck?: { readonly test: readonly string[] }
  readonly depends_on?: Readonly<Record<string, unknown>>
}

interface ProjectFile {
  readonly services: Readonly<Record<string, ServiceKeys>>
  readonly secrets?: Readonly<Record<string, { readonly file: string }>>
}

const readKeys = ['image', 'command', 'environment', 'ports', 'volumes', 'secrets', 'read_only', 'cap_drop', 'security_opt', 'healthcheck', 'depends_on']
/** They say how to build, to restart, or to name the network. */
const otherKeys = ['build', 'restart', 'networks', 'pull_policy', 'entrypoint']

/** Reads a Compose file with the parser of Docker, and returns its services: first those that others depend on. `path` is relative to the checkout. */
export async function composedServices(path: string): Promise<ComposedService[]> {
  const project = JSON.parse(await run(requirePart('compose-config'), [join(root, path)])) as ProjectFile // a cast: the parser's form
  const ordered = Object.entries(project.services).toSorted(([, one], [, other]) => dependencies(one) - dependencies(other))
  return ordered.map(([name, service]) => ({ container: containerOf(name, service, project), healthcheck: healthcheckOf(service) }))
}

function dependencies({ depends_on: needed = {} }: ServiceKeys): number {
  return Object.keys(needed).length
}

function containerOf(name: string, service: ServiceKeys, project: ProjectFile): ContainerSpec {
  const unknown = Object.keys(service).filter((key) => ![...readKeys, ...otherKeys].includes(key))
  if (unknown.length > 0) throw new Error(`the service ${name} has unknown keys: ${unknown.join(', ')}`)
  const { cap_drop: dropped = [], security_opt: security = [] } = service
  return {
    name,
    image: service.image,
    command: service.command ?? [],
    env: service.environment ?? {},
    readOnly: service.read_only ?? false,
    mounts: [...volumesOf(service), ...secretsOf(service, project)],
    dropsCapabilities: dropped.includes('ALL'),
    noNewPrivileges: security.includes('no-new-privileges:true'),
    published: (service.ports ?? []).map(({ host_ip: address = '0.0.0.0', published, target }) => ({ address, port: Number(published), target })),
  }
}

function volumesOf({ volumes = [] }: ServiceKeys): ContainerMount[] {
  return volumes.map(({ type, source, target, read_only: readOnly = false }) => {
    if (type === 'volume') return { kind: 'volume', target, volume: source }
    return { kind: 'bind', target, source, readOnly }
  })
}

function secretsOf({ secrets: named = [] }: ServiceKeys, { secrets = {} }: ProjectFile): ContainerMount[] {
  return named.map(({ source, target }) => ({ kind: 'bind', target, source: secrets[source]?.file ?? '', readOnly: true }))
}

function healthcheckOf({ healthcheck }: ServiceKeys): readonly string[] | undefined {
  if (healthcheck === undefined) return undefined
  const [form, ...command] = healthcheck.test
  if (form !== 'CMD') throw new Error(`a health check of the form ${form} is unknown`)
  return command
}

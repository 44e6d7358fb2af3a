import { clientVariables } from './variables.ts'
import { nearestName } from '../base/nearest-name.ts'
import { settings, variablePrefix, type Setting } from './setting.ts'

/** Environment variables, as `process.env` has them. */
export type Environment = Readonly<Record<string, string | undefined>>

/** What the environment sets. A value that can't be read as its type stays text, so that validation names it. */
export interface EnvironmentValues {
  readonly values: ReadonlyMap<Setting, unknown>
  /** Variables with our prefix that mean nothing to us, one line each. */
  readonly warnings: readonly string[]
}

/** Advice for variables that Kubernetes makes from Services. */
export const serviceLinksAdvice = 'Kubernetes sets it for a Service of that name: set enableServiceLinks: false in the pod spec'

/** Variables that Kubernetes makes for a Service, e.g. TAPROOT_API_SERVICE_HOST, TAPROOT_API_PORT_8080_TCP_ADDR. */
const serviceVariable = /(^|_)SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|(^|_)PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$/

/** Meant for the client commands, which share the prefix. */
const notSettings: ReadonlySet<string> = new Set(Object.values(clientVariables))

/** Reads all `TAPROOT_*` variables. An empty variable is as if absent. Lists are separated by commas or, as lists of objects always, JSON. */
export function readEnvironment(env: Environment): EnvironmentValues {
  const byVariable = new Map(settings.map((setting) => [setting.variable, setting]))
  const values = new Map<Setting, unknown>()
  const warnings: string[] = []
  for (const name of Object.keys(env)
    .filter((candidate) => candidate.startsWith(variablePrefix) && !notSettings.has(candidate))
    .toSorted()) {
    const setting = byVariable.get(name)
    const given = env[name]?.trim() ?? ''
    if (setting === undefined) warnings.push(unknownVariable(name, given, byVariable.keys()))
    else if (given !== '') values.set(setting, readValue(setting.node, given))
  }
  return { values, warnings }
}

/** True for what Kubernetes puts into `<SERVICE>_PORT`. */
export function isServiceLink(value: unknown): boolean {
  return typeof value === 'string' && /^(tcp|udp|sctp):\/\//.test(value)
}

function unknownVariable(name: string, value: string, known: Iterable<string>): string {
  if (serviceVariable.test(name) || isServiceLink(value)) return `${name}: not a setting; ${serviceLinksAdvice}`
  const nearest = nearestName(name, known)
  return `${name}: not a setting${nearest === undefined ? '' : `; did you mean ${nearest}?`}`
}

function readValue(node: Setting['node'], given: string): unknown {
  switch (node.type) {
    case 'string':
      return given
    case 'boolean':
      return given === 'true' ? true : given === 'false' ? false : given
    case 'integer':
    case 'number':
      return /^-?\d+(\.\d+)?$/.test(given) ? Number(given) : given
    case 'array':
      return readList(node.items.type === 'object', given)
  }
}

function readList(ofObjects: boolean, given: string): unknown {
  if (!ofObjects && !given.startsWith('[')) return given.split(',').flatMap((item) => (item.trim() === '' ? [] : [item.trim()]))
  try {
    return JSON.parse(given) as unknown // validated afterwards
  } catch {
    return given
  }
}

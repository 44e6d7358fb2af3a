import { clientVariables } from './variables.ts'
import { nearestName } from '../base/nearest-name.ts'
import { settings, variablePrefix, type Setting } from './setting.ts'

/** The environment variables of a process, as in `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>

/** The settings in the environment. A value that cannot be read as the type of its setting stays text, so that the validation reports it. */
export interface EnvironmentValues {
  readonly values: ReadonlyMap<Setting, unknown>
  /** One line for each variable with the prefix `TAPROOT_` that is not a setting. */
  readonly warnings: readonly string[]
}

/** Advice for variables that Kubernetes sets for each Service. */
export const serviceLinksAdvice = 'Kubernetes sets it for a Service of that name: set enableServiceLinks: false in the pod spec'

/** Matches variables that Kubernetes sets for a Service, e.g. TAPROOT_API_SERVICE_HOST, TAPROOT_API_PORT_8080_TCP_ADDR. */
const serviceVariable = /(^|_)SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|(^|_)PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$/

/** Variables of the client commands, which have the same prefix. */
const notSettings: ReadonlySet<string> = new Set(Object.values(clientVariables))

/** Reads all `TAPROOT_*` variables. An empty variable counts as absent. A list is separated by commas, or written as JSON; a list of objects must be JSON. */
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

/** True for a value that Kubernetes sets in `<SERVICE>_PORT`. */
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
    return JSON.parse(given) as unknown // The value is validated later.
  } catch {
    return given
  }
}
